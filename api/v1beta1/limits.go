package v1beta1

import "time"

// Limits on what others send us. Each comment says what the limit protects and what happens beyond it. Authors of claims and of classes
// count as hostile here, and so does every pod that reaches our port; docs/security.md lists who can do what. Each limit is checked before
// the work that it bounds.
const (
	// MaxSelectorBytes limits a class selector as it is written, as JSON or as text. It protects the CPU that parses selectors. Beyond it,
	// the claim is refused (422).
	MaxSelectorBytes = 16 << 10
	// MaxSelectorRequirements limits the requirements of a class selector, labels and expressions together. It protects the CPU that
	// matches classes. Beyond it, the claim is refused (422).
	MaxSelectorRequirements = 64
	// MaxSelectorValues limits the values of all requirements of a class selector together. It protects the same CPU. Beyond it, the claim
	// is refused (422).
	MaxSelectorValues = 1024
	// MaxSelectorWordBytes limits a key, an operator or a value in a class selector. It is the length of the longest valid key,
	// prefix/name. It protects the memory of the regular expressions that check keys and values. Beyond it, the claim is refused (422).
	MaxSelectorWordBytes = 253 + len("/") + 63
	// MaxSelectorComparisons limits the comparisons of numbers (Gt, Lt) in a class selector. They read the labels of each class, where
	// other requirements read sets of classes, and cost several times the CPU. Beyond it, the claim is refused (422).
	MaxSelectorComparisons = 8
	// MaxReferenceBytes limits a class reference that is put back after an update removed it, as JSON. It protects the memory for answers.
	// Beyond it, the update is left alone, and its author is warned.
	MaxReferenceBytes = 16 << 10
	// MaxListedReferences limits the references of a list that classbind and the API server check, those within its elements included.
	// Equal ones count once. It protects the CPU and the reads that each takes. Beyond it, the claim is refused (403).
	MaxListedReferences = 8
	// MaxShownBytes limits a text from outside in an error, such as the wrong value of a field. It protects the length of answers, logs and
	// events. Beyond it, the text ends in three dots.
	MaxShownBytes = 100
	// MaxMessageBytes limits an error from elsewhere, such as from the API server, that an answer, a condition, an event or a log repeats.
	// It protects their length. Beyond it, the message ends in three dots.
	MaxMessageBytes = 512
	// MaxErrors limits the errors in one answer. It protects the length of answers, logs and events. Beyond it, the answer reports that
	// there are more.
	MaxErrors = 10

	// MaxExpressionCost limits the cost of all expressions that are evaluated for one claim. A unit is at most 50 ns of CPU: this is 6 ms,
	// and as much again each time that a waiting claim is decided on again. It protects the claims of others. Beyond it, the classes that
	// are left are not judged. A claim that could get only one of these is refused (422) if it has a long field, and gets 503 if it has
	// none.
	MaxExpressionCost = 120_000
	// MaxClassExpressionCost limits the same for one class, when it changes and for each claim, and for each evaluation: 1 ms of CPU. It
	// protects the watch of the other classes, and the claims. Beyond it, the class is offered to no claim. A claim with longer fields is
	// refused (422) if no other class fits.
	MaxClassExpressionCost = 20_000
	// LongExpressionCost is what a claim or a class costs to go through once if its fields are long: they have some 60 elements, or 600
	// bytes. It protects the other classes: where not all can be judged, those with long fields are judged last.
	LongExpressionCost = 64
	// FreeExpressionCost is the part of the cost for one claim that needs no turn: 1 ms of CPU. As much may be spent beside it on classes
	// that the claim may not be allowed to use. Beyond it, the API server is asked about such a class before it is judged.
	FreeExpressionCost = 20_000
	// MaxExpressionValueBytes limits a field of a claim, a class or a related object that an expression looks at, as JSON. It protects the
	// memory of every replica. Beyond it, a claim is refused (422), and a field of another object is an error for the expression.
	MaxExpressionValueBytes = 16 << 10
	// MaxExpressionElements limits the elements of lists and the entries of maps in one of these fields, all together. It protects the CPU
	// that goes through them, and the same memory. Beyond it, the same happens.
	MaxExpressionElements = 1000

	// MaxUsage limits how much of a quantity of the capacity of its class one claim uses. It protects the sums of what is used. Beyond it,
	// the claim is refused (422).
	MaxUsage = 1 << 53
	// MaxQuantities limits the quantities of a capacity, and those that a claim kind names, as their CRDs do. It protects the memory for
	// the sums of each class and namespace. Beyond it, the review of the registration is refused (400): no API server sends it.
	MaxQuantities = 4
	// MaxRecountedBytes limits what a replica keeps of a claim, to evaluate its usage again when a related object or its Namespace changes:
	// the fields that this depends on, as JSON. It protects memory. Beyond it, the usage is evaluated again only when the claim changes.
	MaxRecountedBytes = 512

	// MaxClassLabels limits the labels of one class. It protects the memory of every replica, which holds the labels of all classes. Beyond
	// it, the class is offered to no claim.
	MaxClassLabels = 64
	// MaxClassLabelBytes limits the keys and values of one class's labels together. It protects the same memory. Beyond it, the class is
	// offered to no claim.
	MaxClassLabelBytes = 8 << 10
	// MaxRefusals limits the classes that gates refuse one claim. It protects those whom the gates ask. Beyond it, the claim gets 503:
	// whether a class is left is not known.
	MaxRefusals = 100
	// MaxUnlikelyRefusals limits the same for the classes that no role allows, where roles and bindings are known. Beyond it, the claim
	// gets none of the classes that are left.
	MaxUnlikelyRefusals = 16
	// MaxAllowedShown limits the classes in the list of those that a refused claim may use, and the access reviews for them. It protects
	// the length of answers, and the API server.
	MaxAllowedShown = 10
	// MaxAccessAnswers limits the answers to access reviews that a replica keeps. It protects memory: 5 MB. Beyond it, the oldest is
	// forgotten.
	MaxAccessAnswers = 16 << 10
	// AccessAnswerLifetime is how long such an answer is kept.
	AccessAnswerLifetime = 5 * time.Second
	// MaxRoleNames limits the subjects of followed bindings, and the rules for the verb use with the names of classes in them. It protects
	// the CPU that puts them together. Beyond it, roles count as not known: more access reviews are asked.
	MaxRoleNames = 1 << 18
	// MaxRecentRoleNames limits the names in what roles grant to the subjects of recent claims. It protects memory: 50 MB. Beyond it, it is
	// put together again.
	MaxRecentRoleNames = 1 << 19
	// MinDisputePause and MaxDisputePause limit how often the leader puts back what another client changes of the webhook configurations
	// and the policies: at once, then after a pause that doubles. They protect the API server, which compiles what is written.
	MinDisputePause = 2 * time.Second
	// MaxDisputePause is the longest pause. Until it ends, what the other client wrote stays.
	MaxDisputePause = 10 * time.Minute
	// MaxTurns limits the classes whose last turn RoundRobin remembers for one claim kind, also those that are gone. It protects the memory
	// of every replica: 15 MB. Beyond it, the older half is forgotten.
	MaxTurns = 1 << 17

	// MaxChooserTimeout limits how long a claim waits for its chooser. It protects the author of the claim. Beyond it, the chooser counts
	// as unavailable.
	MaxChooserTimeout = time.Second
	// MaxChooserCandidates limits the candidates in a question to a chooser. It protects the chooser, and the CPU that tests and writes
	// them. Beyond it, the question has those that come first in the order of the draw.
	MaxChooserCandidates = 100
	// MaxChooserRequestBytes limits a question to a chooser. It protects memory, and the chooser. The next two limit its parts, so that
	// all have room in it.
	MaxChooserRequestBytes = 256 << 10
	// MaxChooserClaimBytes limits the fields of a claim in a question to its chooser together, as JSON. It protects memory, and the
	// classes' part of the question. Beyond it, the claim is refused (422).
	MaxChooserClaimBytes = 64 << 10
	// MaxChooserClassBytes limits the fields of a class in a question to a chooser together, as JSON: all fit into the question, with 4 KiB
	// for the rest. It protects the other classes. Beyond it, the question lacks the class, which follows those that the chooser orders.
	MaxChooserClassBytes = (MaxChooserRequestBytes - MaxChooserClaimBytes - 4<<10) / MaxChooserCandidates
	// MaxChooserHeaderBytes limits the headers of an answer of a chooser. It protects memory. Beyond it, the answer is invalid.
	MaxChooserHeaderBytes = 16 << 10
	// MaxChooserResponseBytes limits the answer of a chooser. It protects memory and CPU. Beyond it, the chooser counts as unavailable.
	MaxChooserResponseBytes = 64 << 10
	// MaxChooserEpochBytes limits the epoch of a chooser's data. It protects memory. Beyond it, the answer is invalid, and the chooser
	// counts as unavailable.
	MaxChooserEpochBytes = 128
	// MaxChooserMessageBytes limits what a chooser says to the author of a claim. It protects the length of answers. Beyond it, the message
	// ends in three dots.
	MaxChooserMessageBytes = 256
	// MaxChooserFailures limits the calls of a chooser that fail in a row, or that time out. It protects claims from waiting. Beyond it,
	// the chooser is not asked until its status is good again.
	MaxChooserFailures = 5
	// MaxChooserAnswers limits the cached answers of one chooser, and the classes whose fields are kept as JSON. It protects memory: 1 MiB
	// for answers, which are positions of candidates, and 8 MiB for fields. Neither keeps a class. Beyond it, the one that was used the
	// longest ago is forgotten.
	MaxChooserAnswers = 4096
	// MaxChooserAnswerAge limits how long an answer is cached. It protects claims from old data. Beyond it, the chooser is asked again.
	MaxChooserAnswerAge = time.Minute

	// MaxReviewBytes limits an AdmissionReview. The API server takes a request of 3 MiB and stores an object of 1.5 MiB; Go's JSON writes
	// up to six bytes for one of them. It protects memory. Beyond it, the review is refused (413).
	MaxReviewBytes = 28 << 20
	// MaxNameBytes limits each name and other short text in an AdmissionReview. The API server's longest has 253. It protects memory and
	// the log. Beyond it, the review is refused (400).
	MaxNameBytes = 512
	// MaxUserInfoBytes limits the userInfo of an AdmissionReview, as JSON, where expressions look at it. It protects the CPU that decodes
	// it. Beyond it, the review is refused (400).
	MaxUserInfoBytes = 64 << 10
	// FreeReviewBytes is the part of a review that does not count as in flight, so that the usual review never waits: MaxConnections limits
	// these parts. With HTTP/2, each of the MaxStreams reviews of a connection gets an equal share of it.
	FreeReviewBytes = 64 << 10
	// MaxReviewBytesInFlight limits all reviews that a replica holds. It protects memory. Beyond it, a review waits until its deadline, and
	// gets 503.
	MaxReviewBytesInFlight = 64 << 20

	// MaxConnections limits the connections to the webhook server. It protects the memory for the connections and for FreeReviewBytes of
	// each. Beyond it, a new connection replaces one that is not answering a review, and waits if there is none. Up to a quarter of the
	// places stay with connections that have not carried a review yet.
	MaxConnections = 1000
	// MaxStreams limits the HTTP/2 streams of one connection, with --http2. It protects memory: each is a request of its own. Beyond it, a
	// stream is refused, and Go's client sends it again on another connection, at once or a second later.
	MaxStreams = 8
	// MaxHeaderBytes limits the header of a request to the webhook server. It protects memory. Beyond it, the request is refused (431).
	MaxHeaderBytes = 16 << 10

	// MaxClassWait limits how long a claim waits for a newer view of the classes, when no known class is left for it. It protects the
	// author of the claim. Beyond it, the claim is answered from what is known.
	MaxClassWait = 250 * time.Millisecond
	// MinClassWaitPause is how long a claim that was decided on again in vain does not mind newer views. The pause is longer if that took
	// long: all claims that wait take one CPU at most. It protects the CPU from a storm of changes. The last view counts in any case.
	MinClassWaitPause = 5 * time.Millisecond

	// MaxLiveReadsOfAPIGroup limits the concurrent live reads of all kinds of one API group. It protects claims that need none of the
	// group, when its API server does not answer. Beyond it, a claim waits as above.
	MaxLiveReadsOfAPIGroup = 4
	// MaxRegistrationParts limits the fits, and the related objects, of a registration, as its CRD does. It protects the same CPU. Beyond
	// it, the review is refused (400): no API server sends it.
	MaxRegistrationParts = 8
	// MaxRelatedListed limits the objects in one list of related objects, without those that are expired. It protects the CPU that makes
	// such a list for each claim. Each class for which an expression goes through the list pays for it again: 64 quotas leave some ten
	// classes to be judged. Beyond it, the claim is refused (422), or gets 503 if the list is not of its own namespace.
	MaxRelatedListed = 64
	// MaxRelatedSelected limits the objects of a namespace from which such a list is made, those included that are expired. It protects
	// the same CPU, and has the same effect.
	MaxRelatedSelected = 1000
	// MaxRelatedSelectorTerms limits the labels, expressions and values of the selector of related objects. It protects the CPU that
	// compares each object with it. Beyond it, the selector is invalid (422).
	MaxRelatedSelectorTerms = 64
	// MaxCompileCost limits what it costs to compile the expressions of one ClaimKind or ClassKind. It is a unit for each byte, and four
	// for each part and for each state of a pattern. It is more within several loops, lists or maps. It is also more for categories of
	// characters, and for ranges after (?i), in patterns. A unit is at most a microsecond of CPU and 2 KiB. It protects the CPU and the
	// memory of a replica. Beyond it, the expression is invalid (422), as are those after it.
	MaxCompileCost = 12_000
	// MaxRegistrationLinks limits the names of other registrations in one, as its CRD does. It protects the same CPU, and the review is
	// refused likewise.
	MaxRegistrationLinks = 64
	// MaxWarningBytes limits one warning about a registration. It protects the length of answers. Beyond it, the warning ends in three
	// dots.
	MaxWarningBytes = 1 << 10
	// MaxWarningsBytes limits all warnings about a registration. It protects their ends: an API server cuts each to 256 characters if all
	// have more than 4096. Beyond it, the last one counts those that are left out.
	MaxWarningsBytes = 3 << 10
	// ListPage is how many objects one answer to a list holds. It protects the memory of the API server. Beyond it, the next page is asked
	// for.
	ListPage = 500

	// MaxDepth limits the nesting of objects and arrays in an API server's answer about claims and classes. Decoders refuse ten times this
	// depth, and with it the whole list. It protects the other claims and classes of the kind. Beyond it, an object or an array is read as
	// empty.
	MaxDepth = 1000
	// MaxDiscoveryBytes limits an API server's answer about the kinds in one version of a group, or about their schemas. It protects
	// memory. Beyond it, these kinds are not looked up, or their paths not compared with the schema.
	MaxDiscoveryBytes = 8 << 20
	// MaxSchemaReferences limits the references from schema to schema that are followed for one field of a claim. It protects the leader
	// from a circle. Beyond it, nothing is known of the field.
	MaxSchemaReferences = 8
	// MaxCheckedSchemas limits the schemas with which the expressions of one registration are compared. It protects memory. Beyond it,
	// nothing is known of the others, and they call no expression wrong.
	MaxCheckedSchemas = 16

	// MaxEntryBytes limits one entry of a webhook configuration, counted as in MaxEntriesBytes. It protects the other entries of the
	// configuration. Beyond it, the registration gets no entry, and its status says so.
	MaxEntryBytes = 72 << 10
	// MaxEntriesBytes limits all entries of a webhook configuration, as JSON and with what the API server records of their fields. An entry
	// with deep paths counts as what the paths take to compile, if that is more. It protects the configuration: etcd takes 1.5 MiB. It also
	// protects its writes, to which the API server gives 34 s: compiling takes it about 5 s of CPU at most. Beyond it, registrations that
	// have no entry yet get none, those whose names come last, and their status says so.
	MaxEntriesBytes = 1 << 20
	// MaxGrownEntryBytes is MaxEntryBytes for an entry that the configuration already has, so that a CA bundle that grows in a rotation
	// does not remove it.
	MaxGrownEntryBytes = MaxEntryBytes + MaxEntryBytes/4
	// MaxGrownEntriesBytes is MaxEntriesBytes for the entries that the configuration already has.
	MaxGrownEntriesBytes = MaxEntriesBytes + MaxEntriesBytes/4

	// StartPatience is how long a starting replica waits for a class kind that was served before. It protects all other claim kinds. Beyond
	// it, only the claims that the missing class kind serves get 503.
	StartPatience = 30 * time.Second

	// MaxScrapes limits the concurrent answers to /metrics, with --metrics-secure. It protects memory. Beyond it, the answer is 429.
	MaxScrapes = 10
	// MaxUnknownScrapes limits the scrapes that wait, with --metrics-secure, for the API server to review a token that is not among the
	// last 10 that this replica let read. It protects memory, and the scrapes of those 10. Beyond it, the answer is 429. Anybody who
	// reaches the port can make up tokens, and keep new ones out for as long as the flood lasts.
	MaxUnknownScrapes = 10
	// MaxClassSeries limits the classes of one kind whose claims have a metric of their own. It protects Prometheus from users who create
	// classes. Beyond it, the classes with the most claims have one, and all others have one together. Metrics of capacities have none of
	// these others.
	MaxClassSeries = 100
	// MaxTokenReviewRate is how often in a second a replica asks the API server about tokens that read its metrics, and twice as often in a
	// burst. It asks as often about those that it let read before as about all others. It protects the API server. Beyond it, the answer
	// waits, or is 503 after 10 seconds.
	MaxTokenReviewRate = 5
	// MaxWaitingClaims limits the waiting claims of one kind that are held. It protects the memory of each replica. Beyond it, the
	// namespace that holds the most gives up some of its claims, and the leader looks for these every five minutes.
	MaxWaitingClaims = 100_000
	// WaitingClaimBytes is for how long a selector a waiting claim counts once, with the fields that expressions look at. It protects the
	// same memory. A claim that has more counts several times.
	WaitingClaimBytes = 512
	// LateListPage is how many claims one answer to a list holds, of 1.5 MiB at most. It protects the memory of the API server: a replica
	// holds one at a time.
	LateListPage = 100
	// LateEvents limits the events on claims of one kind that the leader remembers, by claim and text, of 2 KiB at most. It protects the
	// leader's memory. Beyond it, it may send one again, which the API server refuses.
	LateEvents = 500
	// MaxPendingDefaults limits the writes of one class, possibly in flight, that a Lease records. It protects the size of a Lease. Beyond
	// it, a request to make the same class default is refused until the first write is over.
	MaxPendingDefaults = 8
	// MaxPendingBytes limits the JSON in which a Lease records its pending writes; classbind writes less. It protects memory from a Lease
	// that somebody edited. Beyond it, reading the Lease is an error that says how to delete it.
	MaxPendingBytes = 8 << 10
	// MaxGuardCalls limits the concurrent calls of the API server for one default class. It protects the API server. Beyond it, the calls
	// wait for each other.
	MaxGuardCalls = 16
	// MaxStoredDefaults limits the default classes that a replica remembers to have seen stored. It protects memory. Beyond it, the one
	// seen first is forgotten, and the next default after it waits for the in-flight window.
	MaxStoredDefaults = 1024
	// MaxSeatLeases limits the Leases of partitions and of single namespaces whose last default class is of one kind and namespace. It
	// protects etcd, and the memory of every replica, from users who move a default class through partitions. The Leases of one kind and
	// namespace take about 1 MiB of etcd, and less than 1 MiB of each replica. What one namespace uses up refuses no other. Beyond it, a
	// class that would be the first default of its partition gets 503, until the leader has deleted Leases that no longer have a default.
	// Anybody who reaches the port without a client certificate can make up the kind and the namespace.
	MaxSeatLeases = 1_000
	// MaxLeasesCollected limits the Leases that the leader reads in ten seconds, to delete those that no longer have a default. It protects
	// the API server. Beyond it, they are deleted later.
	MaxLeasesCollected = 500
	// MaxUIDBytes limits the uid and the resourceVersion of a class, as a Lease records them. It protects the size of a Lease. Beyond it,
	// the review is refused (400): no API server sends it.
	MaxUIDBytes = 128
)

// Limiter is how many requests of a sort may run at once, of all keys and of one, and how many may run or wait. A key is the namespace of
// the claims where nothing else is said, so that none takes the places of others. Beyond InFlight or PerKey, a request waits its turn until
// its deadline, and gets 503. Beyond Waiting or WaitingPerKey it gets that at once: a connection with a waiting review is not closed for
// another.
//
// +kubebuilder:object:generate=false
type Limiter struct {
	InFlight, PerKey, Waiting, WaitingPerKey int
	// Rest is how many times as long as a request ran its place stays taken for others of its key, and MaxRest the longest time.
	Rest    int
	MaxRest time.Duration
}

var (
	// CostlyDecisions limits the decisions that cost more than FreeExpressionCost. It protects the CPU of a replica: for what is not free,
	// one namespace gets at most 1/32 of one CPU. A claim that waits for others of its namespace gets 429, which its client tries again.
	CostlyDecisions = Limiter{2, 1, MaxConnections / 4, MaxConnections / 16, 31, 250 * time.Millisecond}
	// AccessReviews limits the SubjectAccessReviews of a replica. It protects the API server, and the claims of other namespaces where an
	// authorizer hangs.
	AccessReviews = Limiter{InFlight: 64, PerKey: 8, Waiting: MaxConnections / 4, WaitingPerKey: MaxConnections / 16}
	// ChooserCalls limits the calls of one chooser, none of which waits for another. It protects the chooser, and the claims of other
	// namespaces. Beyond it, the chooser counts as unavailable at once.
	ChooserCalls = Limiter{InFlight: 32, PerKey: 8, Waiting: 32, WaitingPerKey: 8}
	// StoredChooserCalls limits those of them that are for claims which are stored and wait. It protects new claims, which cannot wait.
	// Beyond it, a claim asks again soon.
	StoredChooserCalls = Limiter{InFlight: 16, PerKey: 4, Waiting: 16, WaitingPerKey: 4}
	// ClassWaits limits the claims that wait for a class, up to MaxClassWait. Beyond it, a claim is answered at once from what is known.
	ClassWaits = Limiter{InFlight: 250, PerKey: 125, Waiting: 250, WaitingPerKey: 125}
	// LiveReads limits the reads of the API server for claims that name an object which is not known. It protects the API server. Those
	// that wait are counted by claim: a read may be for several.
	LiveReads = Limiter{InFlight: 8, PerKey: 4, Waiting: MaxConnections / 4, WaitingPerKey: MaxConnections / 8}
	// RegistrationReads limits the reads of the API server for claims and classes of kinds that this replica does not know, and for the
	// namespaces of new default classes. All have one key. It protects the API server from made-up reviews.
	RegistrationReads = Limiter{InFlight: 8, PerKey: 8, Waiting: MaxConnections / 8, WaitingPerKey: MaxConnections / 8}
	// NamedReads limits the reads of classes that claims name. It protects the API server.
	NamedReads = Limiter{InFlight: 8, PerKey: 2, Waiting: MaxConnections / 8, WaitingPerKey: MaxConnections / 32}
	// RegistrationReviews limits the reviews of ClaimKinds and ClassKinds, which have one key. It protects the API server, and the CPU that
	// compiles their expressions: a flood of made-up reviews takes at most 0.4 CPUs of a replica. Beyond it, a registration is stored
	// without warnings.
	RegistrationReviews = Limiter{2, 2, 16, 16, 4, 50 * time.Millisecond}
	// GuardReviews limits the reviews that ask the API server, for classes that are to become default. It protects the API server. A key is
	// a kind of classes and a namespace. Anybody who reaches the port without a client certificate can make these up, and hold up default
	// classes for as long as the flood lasts.
	GuardReviews = Limiter{InFlight: 64, PerKey: 32, Waiting: MaxConnections / 2, WaitingPerKey: MaxConnections / 8}
)

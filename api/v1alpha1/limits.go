package v1alpha1

import "time"

// Limits of what others send us, each with what it protects and what happens
// beyond it. Authors of claims and of classes are hostile here, and so is every
// pod that reaches our port; SECURITY.md lists who can do what. A limit is checked
// before the work that it bounds.
const (
	// MaxSelectorBytes of a class selector as it is written, as JSON or as text.
	// It protects the CPU that parses selectors. Beyond, the claim is refused (422).
	MaxSelectorBytes = 16 << 10
	// MaxSelectorRequirements of a class selector, labels and expressions together.
	// It protects the CPU that matches classes. Beyond, the claim is refused (422).
	MaxSelectorRequirements = 64
	// MaxSelectorValues of all requirements of a class selector together. It
	// protects the same. Beyond, the claim is refused (422).
	MaxSelectorValues = 1024
	// MaxSelectorComparisons of numbers (Gt, Lt) in a class selector. They look at
	// the text of a label, where the others look at what is side by side in memory,
	// and take the CPU several times as long. Beyond, the claim is refused (422).
	MaxSelectorComparisons = 8
	// MaxShownBytes of a text from outside in an error, such as the wrong value of
	// a field. It protects the length of answers, logs and events. Beyond, the text
	// ends in three dots.
	MaxShownBytes = 100
	// MaxMessageBytes of an error that an answer, a condition, an event or a log
	// repeats, such as what the API server says. It protects their length. Beyond, the
	// message ends in three dots.
	MaxMessageBytes = 512
	// MaxErrors that one answer reports. It protects the length of answers, logs
	// and events. Beyond, the answer says that there are more.
	MaxErrors = 10

	// MaxClassLabels of one class. It protects the memory of every replica, which
	// holds the labels of all classes. Beyond, the class is offered to no claim.
	MaxClassLabels = 64
	// MaxClassLabelBytes of the keys and values of one class's labels together. It
	// protects the same. Beyond, the class is offered to no claim.
	MaxClassLabelBytes = 8 << 10

	// MaxReviewBytes of an AdmissionReview. The API server takes a request of 3 MiB
	// and stores an object of 1.5 MiB; Go's JSON writes up to six bytes for one of
	// them. It protects memory. Beyond, the review is refused (413).
	MaxReviewBytes = 28 << 20
	// MaxNameBytes of each name and other short text in an AdmissionReview. The API
	// server's longest has 253. It protects memory and the log. Beyond, the review is
	// refused (400).
	MaxNameBytes = 512
	// FreeReviewBytes of a review are not counted as in flight, so that the usual
	// review waits for nobody: MaxConnections limits them. Of HTTP/2, where a connection
	// has MaxStreams reviews at once, each has its part of them.
	FreeReviewBytes = 64 << 10
	// MaxReviewBytesInFlight of all reviews that a replica holds. It protects
	// memory. Beyond, a review waits until its deadline, and gets 503.
	MaxReviewBytesInFlight = 64 << 20

	// MaxConnections to the webhook server. It protects memory: of the connections
	// themselves, and of FreeReviewBytes for each. Beyond, one that no review is being
	// answered on is closed for the one that comes; where there is none, that waits. Of
	// those on which no review has come yet, a quarter stay even where all others had one.
	MaxConnections = 1000
	// MaxStreams of HTTP/2 at once on one connection, with --http2. It protects memory:
	// each is a request of its own. Beyond, a stream is refused, which Go's client sends
	// again on another connection, at once or a second later.
	MaxStreams = 8
	// MaxHeaderBytes of a request to the webhook server. It protects memory. Beyond,
	// the request is refused (431).
	MaxHeaderBytes = 16 << 10

	// MaxLiveReads of the API server at once, for claims that no known class
	// matches. It protects the API server. Beyond, a claim waits its turn until
	// its deadline, and gets 503.
	MaxLiveReads = 8
	// MaxLiveReadsOfNamespace at once, for the claims of one namespace. It protects
	// the claims of the other namespaces. Beyond, a claim waits as above.
	MaxLiveReadsOfNamespace = MaxLiveReads / 2
	// MaxLiveReadsOfAPIGroup at once, of all its class kinds. It protects the claims
	// that other class kinds serve, where the API server of a group does not answer.
	// Beyond, a claim waits as above.
	MaxLiveReadsOfAPIGroup = MaxLiveReads / 2
	// MaxWaitingLiveReads for the claims of one namespace; a claim needs one of each
	// class kind that serves it. It protects memory: in the time that a claim has,
	// far fewer can be done. Beyond, a claim gets 503 at once.
	MaxWaitingLiveReads = 512
	// MaxClaimsInLiveReads are the claims for which a live read is under way or waits.
	// It protects the connections: one on which a review waits is not closed for
	// another. Beyond, a claim gets 503 at once.
	MaxClaimsInLiveReads = MaxConnections / 4
	// MaxClaimsInLiveReadsOfNamespace is the same for the claims of one namespace. It
	// protects the claims of the others.
	MaxClaimsInLiveReadsOfNamespace = MaxClaimsInLiveReads / 2
	// MaxRegistrationReads of the API server at once, for claims and classes of kinds
	// that this replica does not know, and for the namespaces of new default classes.
	// It protects the API server from reviews of what somebody made up. Beyond, a
	// review waits as above.
	MaxRegistrationReads = 8
	// MaxWaitingRegistrationReads that are under way or wait. It protects the
	// connections, as above. Beyond, a review gets 503 at once.
	MaxWaitingRegistrationReads = MaxConnections / 8
	// LiveReadPage is how many classes one answer of a live read holds. It protects
	// memory: of a page, only the classes that the claim asks for are kept.
	LiveReadPage = 500
	// MaxPushedSelectorBytes of a selector that the API server evaluates for a live
	// read, as it is written in a URL, which proxies cut off at 8 KiB. Beyond, the
	// classes are listed without it and matched here.
	MaxPushedSelectorBytes = 4 << 10

	// MaxDepth of objects and arrays in what an API server answers about claims and
	// classes. Decoders refuse what is ten times as deep, and with it the list that it
	// stands in. It protects the other claims and classes of its kind. Beyond, an object
	// or an array is read as if it were empty.
	MaxDepth = 1000
	// MaxDiscoveryBytes of what an API server says it serves in one version of a
	// group. It protects memory. Beyond, the kinds in it are not looked up.
	MaxDiscoveryBytes = 8 << 20

	// MaxEntryBytes of one entry of a webhook configuration, counted as for all of
	// them. It protects the other entries of the configuration. Beyond, the
	// registration gets no entry, and its status says so.
	MaxEntryBytes = 64 << 10
	// MaxEntriesBytes of all entries of a webhook configuration, as JSON and with
	// what the API server records of their fields; an entry with deep paths counts
	// as what the paths take to compile, if that is more. It protects the
	// configuration, of which etcd takes 1.5 MiB, and its writes, to which the API
	// server gives 34 s: compiling takes it about 5 s of CPU at most. Beyond, the
	// newest registrations get no entry, and their status says so.
	MaxEntriesBytes = 1 << 20
	// MaxGrownEntryBytes is the same for an entry that the configuration has already,
	// so that a CA bundle which grows by a rotation does not remove it.
	MaxGrownEntryBytes = MaxEntryBytes + MaxEntryBytes/4
	// MaxGrownEntriesBytes is the same for all entries that the configuration has already.
	MaxGrownEntriesBytes = MaxEntriesBytes + MaxEntriesBytes/4

	// StartPatience is how long a replica that starts waits for a class kind that
	// was served before. It protects all other claim kinds. Beyond, only the claims
	// that the missing class kind serves get 503.
	StartPatience = 30 * time.Second

	// MaxScrapes of /metrics that are answered at once, with --metrics-secure. It
	// protects memory. Beyond, the answer is 429.
	MaxScrapes = 10
	// MaxUnknownScrapes wait at once, with --metrics-secure, for what the API server
	// says of a token that is not among the last 10 that this replica let read. It
	// protects memory, and the scrapes of those 10. Beyond, the answer is 429. Whoever
	// reaches the port can make up tokens, and keep new ones out for as long as he floods.
	MaxUnknownScrapes = 10
	// MaxTokenReviewRate is how often in a second a replica asks the API server about
	// the tokens with which its metrics are read, and twice as often in a burst: as often
	// about those that it let read before as about all others. It protects the API
	// server. Beyond, the answer waits, or is 503 where 10 seconds are too few.
	MaxTokenReviewRate = 5
	// DefaultLateMemory is what --late-binding-memory is unless it is given, in bytes.
	// It protects the leader's memory. A quarter of it at most holds the selectors of
	// one namespace. Beyond, claims wait without their selectors.
	DefaultLateMemory = 64 << 20
	// LateReads of claims that wait without their selectors, in each round of half a
	// second, by claim kind. It protects the API server. Beyond, they wait their turn.
	LateReads = 10
	// LateListPage is how many claims one answer to a list holds, of 1.5 MiB at most.
	// It protects the memory of the API server: the leader holds one at a time.
	LateListPage = 100
	// LateEvents on claims that have yet to be created, of 2 KiB at most. It protects
	// the leader's memory. Of one namespace, there are as many as places are free.
	// Beyond, events that say to which class a claim was bound are left out, and those
	// that say why one waits come later.
	LateEvents = 20_000
	// MaxPendingDefaults is how many writes of one class, which may be in flight, a
	// Lease records. It protects the size of a Lease. Beyond, a request to make the
	// same class default is refused until the first of them is over.
	MaxPendingDefaults = 8
	// MaxGuardReviews that ask the API server at once, for classes that are to become
	// default. It protects the API server. Beyond, a review waits its turn until its
	// deadline, and gets 503, and none waits for another's class to be stored.
	MaxGuardReviews = 64
	// MaxGuardReviewsOfNamespace at once, for classes of one kind and namespace. It
	// protects the default classes of the others. Beyond, a review waits as above.
	// Whoever reaches the port without a client certificate can make up the kind and
	// the namespace, and hold up default classes for as long as he floods.
	MaxGuardReviewsOfNamespace = MaxGuardReviews / 2
	// MaxWaitingGuardReviews that have such a turn or wait for one. It protects the
	// connections: one on which a review waits is not closed for another. Beyond, a
	// review gets 503 at once.
	MaxWaitingGuardReviews = MaxConnections / 2
	// MaxWaitingGuardReviewsOfNamespace is the same for classes of one kind and
	// namespace. It protects the default classes of the others.
	MaxWaitingGuardReviewsOfNamespace = MaxWaitingGuardReviews / 4
	// MaxPendingBytes of what a Lease records of these writes, as JSON: more than all
	// that classbind writes. It protects memory from a Lease that somebody edited.
	// Beyond, the Lease is an error, which says how to delete it.
	MaxPendingBytes = 8 << 10
	// MaxGuardCalls of the API server at once, for one default class. It protects
	// the API server. Beyond, the calls wait for each other.
	MaxGuardCalls = 16
	// MaxStoredDefaults are the default classes that a replica remembers to have seen
	// stored. It protects memory. Beyond, the one seen first is forgotten, and the
	// next default after it waits for the in-flight window.
	MaxStoredDefaults = 1024
	// MaxUIDBytes of the uid and of the resourceVersion of a class, as a Lease records
	// them. It protects the size of a Lease. Beyond, the review is refused (400): no API
	// server sends it.
	MaxUIDBytes = 128
)

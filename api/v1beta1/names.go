package v1beta1

// Names that other programs and people see. Each comment says who writes and who reads the name.
const (
	// AnnotationPrefix begins the keys of all annotations that classbind reads or writes, unless a registration names another.
	AnnotationPrefix = "classbind.io/"
	// DefaultAnnotation, "true" on a class, marks it as the default, unless its ClassKind names another mark. Written by cluster admins and
	// "classbind set-default", read by the selector and the guard.
	DefaultAnnotation = "classbind.io/default"
	// WeightAnnotation on a class is its weight, from 0 to 1000000, unless its ClassKind names another place. Written by cluster admins,
	// read by the selector.
	WeightAnnotation = "classbind.io/weight"
	// CapacityAnnotation on a class is how many claims it may have, if its ClassKind has the quantity claims in spec.capacity, and names no
	// other place. For another quantity, the name of the annotation ends in -NAME, as in classbind.io/capacity-memory. Written by cluster
	// admins, read by the selector.
	CapacityAnnotation = "classbind.io/capacity"
	// CrossplaneDefaultAnnotation and CrossplaneWeightAnnotation count beside these two. A class with either mark is the default; of two
	// weights, that of WeightAnnotation counts. Written by cluster admins, for the classes of Crossplane 0.3, read by the selector and the
	// guard.
	CrossplaneDefaultAnnotation = "resourceclass.crossplane.io/is-default-class"
	CrossplaneWeightAnnotation  = "resourceclass.crossplane.io/weight"
	// CordonedAnnotation, "true" on a class, keeps it from new claims. Written by cluster admins, read by the selector.
	CordonedAnnotation = "classbind.io/cordoned"
	// IgnoredAnnotation, "true" on a ClassKind, has claims decided on without its classes, such as while they cannot be read. Written by
	// cluster admins, read by all replicas.
	IgnoredAnnotation = "classbind.io/ignored"
	// ClassSelectorAnnotation on a claim is its class selector in the syntax of kubectl's --selector, unless the ClaimKind names another
	// annotation. Written by claim authors, mostly for claim kinds without a selector field, read by the selector.
	ClassSelectorAnnotation = "classbind.io/class-selector"
	// DecisionAnnotation on a claim says why it has its class, if its ClaimKind says so. It is JSON, with the reason in a word, the class,
	// the strategy and the number of candidates: the same decision is the same text. Written by classbind when it binds the claim, read by
	// people and "classbind explain".
	DecisionAnnotation = "classbind.io/decision"
	// PresetAnnotation on a registration or a role names the preset that it copies, and its edition: PRESET@HASH. Written in the
	// presets, read by "classbind check".
	PresetAnnotation = "classbind.io/preset"
	// HolderUIDAnnotation on the Lease of a seat is the uid of the class last admitted as its default. Written and read by the guard.
	HolderUIDAnnotation = "classbind.io/holder-uid"
	// HolderPendingAnnotation on the same Lease lists, as JSON, the writes of that class that may be in flight: for each the id of the
	// attempt that admitted it, and the resourceVersion that an update started from, absent for a create. Written and read by the guard.
	HolderPendingAnnotation = "classbind.io/holder-pending"
	// SeatAnnotation on the Lease of a seat with a partition says which one it is, since the name of the Lease has a hash in its place.
	// Written by the guard, read by people.
	SeatAnnotation = "classbind.io/seat"
	// AggregateLabel, "true" on a ClusterRole, adds its rules to classbind's own role. Written by vendors beside their ClassKinds, read by
	// the API server.
	AggregateLabel = "classbind.io/aggregate-to-classbind"
	// FieldManager owns the entries of the webhook configurations, the status of ClaimKinds and ClassKinds, and the class references of
	// claims bound later. Written by classbind's leader and "classbind bind".
	FieldManager = "classbind"
	// CommandFieldManager owns the default marks that "classbind set-default" moves. Written by that command.
	CommandFieldManager = "classbind-set-default"
	// LastConfiguration and FirstConfiguration are the names of the two MutatingWebhookConfigurations that deploy/ ships without entries
	// and classbind's leader fills with those of claims. The API server calls all webhooks in the order of the names of their
	// configurations.
	LastConfiguration  = "zz-classbind"
	FirstConfiguration = "00-classbind"
	// ClassConfiguration is the name of the ValidatingWebhookConfiguration that deploy/ ships and the leader fills likewise, with the
	// entries of classes.
	ClassConfiguration = "classbind"
	// BindSuffix follows the claim kind's name in the name of each entry of the MutatingWebhookConfigurations. Written by classbind's
	// leader, read in API server errors.
	BindSuffix = ".bind.classbind.io"
	// CheckSuffix follows the claim kind's name in the name of its entry in the ValidatingWebhookConfiguration, for claims that name a
	// class themselves. Written by classbind's leader, read in API server errors.
	CheckSuffix = ".check.classbind.io"
	// GuardSuffix follows the class kind's name in the name of each entry of the ValidatingWebhookConfiguration. Written by classbind's
	// leader, read in API server errors.
	GuardSuffix = ".guard.classbind.io"
	// DeletionSuffix follows the class kind's name in the name of its entry for deletions in the ValidatingWebhookConfiguration. Written by
	// classbind's leader.
	DeletionSuffix = ".deletion.classbind.io"
	// RegistrationEntry is the name of the entry for ClaimKinds and ClassKinds themselves in the ValidatingWebhookConfiguration. Written by
	// classbind's leader.
	RegistrationEntry = "registrations.classbind.io"
	// PolicySuffix follows the claim kind's name in the name of its MutatingAdmissionPolicy and of the binding. Written by classbind's
	// leader, read in the API server's metrics.
	PolicySuffix = ".default.classbind.io"
	// UseSuffix follows the claim kind's name in the name of its ValidatingAdmissionPolicy, which checks who may use a class, and of the
	// binding. Written by classbind's leader, read in API server errors.
	UseSuffix = ".use.classbind.io"
	// UseVerb is the verb of the right to use a class. Written by admins, in roles.
	UseVerb = "use"
	// UseAccount is the name of the ServiceAccount that stands for a namespace when its right to use a class is asked for. There need be
	// none: what counts are its groups.
	UseAccount = "classbind.io"
	// ManagedByLabel has the value ManagedBy on the admission policies of ClaimKinds and on their bindings, by which classbind's leader
	// finds them.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "classbind"
	// RegistrationsAnnotation on them has the revisions of the ClaimKind and of the ClassKind from which they were made. Written and read
	// by classbind's leader.
	RegistrationsAnnotation = "classbind.io/registrations"
	// MemoryAnnotation of the ValidatingWebhookConfiguration has what was served, as JSON: the versions of claim kinds, and class kinds.
	// Written by classbind's leader, read by every replica.
	MemoryAnnotation = "classbind.io/served"
	// BindPath is the path that binds claims, called by the API server. The name of their ClaimKind follows it.
	BindPath = "/bind/"
	// CheckPath is the path that validates the class references of claims, called by the API server. The name of their ClaimKind follows
	// it.
	CheckPath = "/check/"
	// GuardPath is the path that validates classes, called by the API server.
	GuardPath = "/guard"
	// DeletionPath is the path that warns of the deletion of a class that claims have, or refuses it, called by the API server.
	DeletionPath = "/deletion"
	// DeletionTimeoutSeconds is how long the API server waits for the warning. It is shorter than WebhookTimeoutSeconds, because a deletion
	// goes on without a warning.
	DeletionTimeoutSeconds = 1
	// RegistrationPath is the path that says what is wrong with ClaimKinds and ClassKinds, called by the API server.
	RegistrationPath = "/registration"
	// WebhookTimeoutSeconds is how long the API server waits for an answer.
	WebhookTimeoutSeconds = 3
	// CASecret holds the self-signed certificate authority that the replicas share, in classbind's own namespace. Written by the first
	// replica.
	CASecret = "classbind-ca"
	// TLSSecret holds the certificate of all replicas and its CA, in classbind's own namespace, if cert-manager issues it. Written by
	// cert-manager.
	TLSSecret = "classbind-tls" //nolint:gosec // The name of a Secret, not its content.
	// EventController reports the events on claims. Written by classbind's leader.
	EventController = "classbind.io/late-binding"
	// LeaderLease names the leader among the replicas, in classbind's own namespace. The Leases of default classes there have names with a
	// dot.
	LeaderLease = "classbind-leader"
)

// Annotations are the keys of all annotations with the prefix. Another key with the prefix is a mistake, unless a registration names it.
var Annotations = []string{
	DefaultAnnotation,
	WeightAnnotation,
	CapacityAnnotation,
	CordonedAnnotation,
	ClassSelectorAnnotation,
	DecisionAnnotation,
	PresetAnnotation,
	IgnoredAnnotation,
	HolderUIDAnnotation,
	HolderPendingAnnotation,
	SeatAnnotation,
	RegistrationsAnnotation,
	MemoryAnnotation,
}

// Condition types and reasons in the status of ClaimKinds and ClassKinds, written by classbind's leader.
const (
	// ConditionReady is True for a ClassKind whose classes are offered to claims, and for a ClaimKind whose claims are bound.
	ConditionReady = "Ready"
	// ConditionSingleDefault is False for a ClaimKind with more than one default class, for all namespaces or for one.
	ConditionSingleDefault = "SingleDefault"
	// ConditionGuarded is True for a ClassKind if the API server asks classbind before it stores a default class of it.
	ConditionGuarded = "Guarded"
	// ConditionWeightsValid is False for a ClassKind if a class has a malformed weight, which counts as 1, or as 0 if it is negative.
	ConditionWeightsValid = "WeightsValid"
	// ConditionCapacitiesValid is False for a ClassKind with a capacity if that of a class is malformed, so that it holds nothing.
	ConditionCapacitiesValid = "CapacitiesValid"
	// ConditionLabelsIndexed is False for a ClassKind if a class has too many labels, and so is offered to no claim.
	ConditionLabelsIndexed = "LabelsIndexed"
	// ConditionMarksValid is False for a ClassKind if a class has a mark, for default or cordoned, that is neither true nor false. It
	// counts as false.
	ConditionMarksValid = "MarksValid"
	// ConditionClaimKindsRegistered is False for a ClassKind that serves no ClaimKind, or names one that does not exist.
	ConditionClaimKindsRegistered = "ClaimKindsRegistered"
	// ConditionPathsValid is False for a ClaimKind if the schema of its claims does not have what the paths and the form of reference need,
	// and Unknown without a schema.
	ConditionPathsValid = "PathsValid"
	// ConditionClassKindsRead is False for a ClaimKind if a ClassKind serves it whose classes have never been read, or if it names a
	// ClassKind that does not exist. Claims are decided on without them.
	ConditionClassKindsRead = "ClassKindsRead"
	// ConditionSelectorsRead is False for the ClaimKinds of PersistentVolumeClaims and Ingresses where Kubernetes has a default class: the
	// API server gives it to claims before we are asked.
	ConditionSelectorsRead = "SelectorsRead"
	// ConditionLetsClustersStart is False for a ClaimKind whose claims a cluster needs to come up, if they cannot be created while no
	// replica of classbind runs.
	ConditionLetsClustersStart = "LetsClustersStart"
	// ConditionLateBinding is True for a ClaimKind with BindLater whose waiting claims are bound when a class matches them.
	ConditionLateBinding = "LateBinding"
	// ConditionClaimsCounted is True for a ClaimKind with LeastClaims, or served by a ClassKind with a capacity or onDelete Deny, whose
	// claims are counted.
	ConditionClaimsCounted = "ClaimsCounted"
	// ConditionExpressionsValid is False for a ClaimKind or ClassKind if an expression does not compile, or fails for a class.
	ConditionExpressionsValid = "ExpressionsValid"
	// ConditionRelatedKnown is False for a ClaimKind or a ClassKind if objects that its claims or classes name cannot be watched.
	ConditionRelatedKnown = "RelatedKnown"
	// ConditionDefaultedByPolicy is True for a ClaimKind with the defaulting Policy if the API server itself gives the default class to
	// claims without a selector.
	ConditionDefaultedByPolicy = "DefaultedByPolicy"
	// ConditionUseEnforced is True for a ClaimKind with classes.use if the API server itself checks who may use the class that a claim
	// names.
	ConditionUseEnforced = "UseEnforced"
	// ConditionChooserReady is True for a ClaimKind with the strategy External whose chooser answers the leader.
	ConditionChooserReady = "ChooserReady"
	// ReasonServed means that claims are bound, or classes offered, as registered.
	ReasonServed = "Served"
	// ReasonNotInstalled means that the API server serves no such resource.
	ReasonNotInstalled = "NotInstalled"
	// ReasonUnsuitable means that the resource is served, but cannot be created (a claim kind) or listed and watched (a class kind). Or the
	// API server itself decides on the reference before it asks webhooks.
	ReasonUnsuitable = "Unsuitable"
	// ReasonVersionNotServed means that the API server does not serve the version of the claims for which the paths of the ClaimKind are
	// written.
	ReasonVersionNotServed = "VersionNotServed"
	// ReasonConflict means that a ClaimKind whose name comes first has the same resource and reference.
	ReasonConflict = "Conflict"
	// ReasonNotPermitted means that classbind may not list and watch the resource.
	ReasonNotPermitted = "NotPermitted"
	// ReasonNotSynced means that the API server has not listed the classes yet, or that the claim kind's webhook is not configured yet.
	ReasonNotSynced = "NotSynced"
	// ReasonStale means that the API server listed the classes once and no longer answers, and that the last known classes are still
	// offered.
	ReasonStale = "Stale"
	// ReasonAmbiguousReference means that the classes of a class kind are not offered to a claim kind: its form of reference cannot
	// distinguish them from those of one whose name comes first.
	ReasonAmbiguousReference = "AmbiguousReference"
	// ReasonUnknownValue means that a field of the ClaimKind has a value that another release of classbind accepted and this one does not
	// know.
	ReasonUnknownValue = "UnknownValue"
	// ReasonClassKindMissing means that a class kind that serves the claim kind was served before, and that this replica does not know its
	// classes yet.
	ReasonClassKindMissing = "ClassKindMissing"
	// ReasonIgnored means that an admin has a class kind ignored, so that its classes are offered to no claim.
	ReasonIgnored = "Ignored"
	// ReasonNamespaceUnknown means that related objects have a namespace, that the classes or the claims have none, and that the
	// registration does not say which it is.
	ReasonNamespaceUnknown = "NamespaceUnknown"
	// ReasonRelatedExpired means that related objects are known, but some are past their validUntil.
	ReasonRelatedExpired = "RelatedExpired"
	// ReasonRelatedMissing means that objects that claims name are not known on this replica, so that expressions have no result.
	ReasonRelatedMissing = "RelatedMissing"
	// ReasonExpressionsValid and ReasonInvalidExpression report whether all expressions compile, ReasonMistypedExpression that one fails by
	// the schema of what it looks at, and ReasonExpressionFailed that one fails for some class.
	ReasonExpressionsValid   = "ExpressionsValid"
	ReasonInvalidExpression  = "InvalidExpression"
	ReasonMistypedExpression = "MistypedExpression"
	ReasonExpressionFailed   = "ExpressionFailed"
	// ReasonTooLarge means that the webhook configuration has no room for the kind's entry, so the API server does not ask classbind. Or
	// a chooser's answer, or a list of related objects, is too long.
	ReasonTooLarge = "TooLarge"
	// ReasonOneDefault, ReasonNoDefault and ReasonSeveralDefaults count a claim kind's default classes.
	ReasonOneDefault      = "OneDefault"
	ReasonNoDefault       = "NoDefault"
	ReasonSeveralDefaults = "SeveralDefaults"
	// ReasonPolicyNotServed means that the API server does not know the kind of policy, and ReasonPolicyRefused means that it does not take
	// that of classbind. ReasonNeedsWebhook means that it cannot compute the default class of a claim. ReasonWeightZero means that the
	// default class has the weight 0, so no claim gets it.
	ReasonPolicyNotServed = "PolicyNotServed"
	ReasonPolicyRefused   = "PolicyRefused"
	ReasonNeedsWebhook    = "NeedsWebhook"
	ReasonWeightZero      = "WeightZero"
	// ReasonEnforced means that the API server has the policy that checks who may use a class. ReasonNoNamespace means that
	// claims have no namespace whose right to use a class could count.
	ReasonEnforced    = "Enforced"
	ReasonNoNamespace = "NoNamespace"
	// ReasonDefaultCordoned means that a default class is cordoned, so no claim gets it.
	ReasonDefaultCordoned = "DefaultCordoned"
	// ReasonWatched means that all claims of the kind are known.
	ReasonWatched = "Watched"
	// ReasonClassKindsRead means that the classes of every installed class kind are known.
	ReasonClassKindsRead = "ClassKindsRead"
	// ReasonNoClassKind means that no class kind serves a claim kind that was never served, so it has no entry in the webhook configuration
	// yet.
	ReasonNoClassKind = "NoClassKind"
	// ReasonConfigured and ReasonNotConfigured report whether the webhook configuration has an entry for the kind.
	ReasonConfigured    = "Configured"
	ReasonNotConfigured = "NotConfigured"
	// ReasonWeightsValid and ReasonMalformedWeight report whether all weights can be read.
	ReasonWeightsValid    = "WeightsValid"
	ReasonMalformedWeight = "MalformedWeight"
	// ReasonCapacitiesValid and ReasonMalformedCapacity report whether all capacities can be read.
	ReasonCapacitiesValid   = "CapacitiesValid"
	ReasonMalformedCapacity = "MalformedCapacity"
	// ReasonLabelsIndexed and ReasonTooManyLabels report whether the labels of all classes are held.
	ReasonLabelsIndexed = "LabelsIndexed"
	ReasonTooManyLabels = "TooManyLabels"
	// ReasonMarksValid and ReasonMalformedMark report whether all marks can be read.
	ReasonMarksValid    = "MarksValid"
	ReasonMalformedMark = "MalformedMark"
	// ReasonRegistered, ReasonNotRegistered and ReasonNoClaimKinds report whether every claim kind that a class kind names is registered,
	// and whether it serves one.
	ReasonRegistered    = "Registered"
	ReasonNotRegistered = "NotRegistered"
	ReasonNoClaimKinds  = "NoClaimKinds"
	// ReasonPathsValid means that the schema of the claims has all that is needed.
	ReasonPathsValid = "PathsValid"
	// ReasonReferencePruned means that claims would be stored without their reference, or without fields of it, so none is bound, or that
	// they were.
	ReasonReferencePruned = "ReferencePruned"
	// ReasonPathsInvalid says what else is wrong with a path or the form of reference, so no claim is bound.
	ReasonPathsInvalid = "PathsInvalid"
	// ReasonReferenceRefused means that the schema refuses the references to classes of some kinds, or those that are added to claims
	// later. Other claims are bound.
	ReasonReferenceRefused = "ReferenceRefused"
	// ReasonAllReferencesRefused means that the schema refuses the references to all classes.
	ReasonAllReferencesRefused = "AllReferencesRefused"
	// ReasonSchemaUnknown means that the schema allows anything, or that there is none.
	ReasonSchemaUnknown = "SchemaUnknown"
	// ReasonNeededToStart means that a cluster needs such claims before a replica of classbind can run.
	ReasonNeededToStart = "NeededToStart"
	// ReasonAnswering means that the chooser answers.
	ReasonAnswering = "Answering"
	// ReasonTimeout means that the chooser answers too late.
	ReasonTimeout = "Timeout"
	// ReasonConnection means that there is no connection to the chooser.
	ReasonConnection = "Connection"
	// ReasonInvalid means that the chooser's answer is invalid.
	ReasonInvalid = "Invalid"
	// ReasonEpoch means that the chooser's answer has another epoch than its status.
	ReasonEpoch = "Epoch"
	// ReasonUnimplemented means that the program is no chooser.
	ReasonUnimplemented = "Unimplemented"
	// ReasonFailed means that the chooser answers with another code of gRPC.
	ReasonFailed = "Failed"
	// ReasonBusy means that too many questions to the chooser are open.
	ReasonBusy = "Busy"
	// ReasonCircuitOpen means that the chooser did not answer before.
	ReasonCircuitOpen = "CircuitOpen"
	// ReasonNamespaceCircuitOpen means that it did not answer claims of the namespace before.
	ReasonNamespaceCircuitOpen = "NamespaceCircuitOpen"
	// ReasonOwnNamespace means that the chooser is not asked about claims of the namespace that it runs in.
	ReasonOwnNamespace = "OwnNamespace"
	// ReasonNoBuiltinDefault and ReasonBuiltinDefault report whether the API server itself gives claims a default class.
	ReasonNoBuiltinDefault = "NoBuiltinDefault"
	ReasonBuiltinDefault   = "BuiltinDefault"
)

// Reasons of the events on claims, written by classbind's leader.
const (
	// EventBoundToClass names the class that a waiting claim was bound to.
	EventBoundToClass = "BoundToClass"
	// EventReferenceRemoved says, once, that the API server stored a claim without the reference to its class.
	EventReferenceRemoved = "ReferenceRemoved"
	// EventReferenceRefused says, once, that the API server refuses to add the reference to its class to a claim that waits, and why.
	EventReferenceRefused = "ReferenceRefused"
	// EventNoMatchingClass says, once, why a claim waits.
	EventNoMatchingClass = "NoMatchingClass"
)

package v1alpha1

// Names that other programs and people see, each with who writes and who reads it.
const (
	// CordonedAnnotation, "true" on a class, offers it to no new claim. Written
	// by cluster admins, read by the selector.
	CordonedAnnotation = "classbind.io/cordoned"

	// ClassSelectorAnnotation on a claim is its class selector in the syntax of
	// kubectl's --selector. Written by claim authors, mostly for claim kinds
	// without a selector field, read by the selector.
	ClassSelectorAnnotation = "classbind.io/class-selector"

	// HolderUIDAnnotation on the Lease of a seat is the uid of the class that was
	// last admitted as its default. Written and read by the guard.
	HolderUIDAnnotation = "classbind.io/holder-uid"

	// HolderPendingAnnotation beside it lists, as JSON, the writes of that class
	// which may be in flight: the id of the attempt that admitted each, and the
	// resourceVersion from which the class was to be updated, absent where it was
	// to be created. Written and read by the guard.
	HolderPendingAnnotation = "classbind.io/holder-pending"

	// AggregateLabel, "true" on a ClusterRole, adds its rules to classbind's own
	// role. Written by vendors beside their ClassKinds, read by the API server.
	AggregateLabel = "classbind.io/aggregate-to-classbind"

	// FieldManager owns the entries of the webhook configurations, the status of
	// ClaimKinds and ClassKinds, and the class references of claims that were bound
	// later. Written by classbind's leader.
	FieldManager = "classbind"

	// CommandFieldManager owns the marks of default classes that "classbind
	// set-default" moves. Written by that command.
	CommandFieldManager = "classbind-set-default"

	// WebhookConfiguration is the name of the MutatingWebhookConfiguration and of
	// the ValidatingWebhookConfiguration that deploy/ ships without entries and
	// classbind's leader fills.
	WebhookConfiguration = "classbind"

	// BindSuffix ends the name of each entry of the first, which begins with the
	// claim kind's. Written by classbind's leader, read in API server errors.
	BindSuffix = ".bind.classbind.io"

	// GuardSuffix ends the name of each entry of the second, which begins with the
	// class kind's. Written by classbind's leader, read in API server errors.
	GuardSuffix = ".guard.classbind.io"

	// BindPath is where the webhook server binds claims, called by the API server.
	BindPath = "/bind"

	// GuardPath is where the webhook server validates classes, called by the API server.
	GuardPath = "/guard"

	// WebhookTimeoutSeconds is how long the API server waits for an answer.
	WebhookTimeoutSeconds = 3

	// CASecret holds the self-signed certificate authority that the replicas
	// share, in classbind's own namespace. Written by whichever replica is first.
	CASecret = "classbind-ca" //nolint:gosec // The name of a Secret, not its content.

	// TLSSecret holds the certificate of all replicas, and its CA, where
	// cert-manager issues it, in classbind's own namespace. Written by cert-manager.
	TLSSecret = "classbind-tls" //nolint:gosec // The name of a Secret, not its content.

	// EventController reports the events on claims. Written by classbind's leader.
	EventController = "classbind.io/late-binding"

	// LeaderLease names the leader among the replicas, in classbind's own
	// namespace. The Leases of default classes there have names with a dot.
	LeaderLease = "classbind-leader"
)

// Condition types and reasons in the status of ClaimKinds and ClassKinds,
// written by classbind's leader.
const (
	// ConditionReady is True for a ClassKind whose classes are offered to
	// claims, and for a ClaimKind whose claims are bound.
	ConditionReady = "Ready"
	// ConditionSingleDefault is False for a ClaimKind with more than one default
	// class, of all namespaces or of one.
	ConditionSingleDefault = "SingleDefault"
	// ConditionGuarded is True for a ClassKind of which the API server asks us
	// before it stores a default class.
	ConditionGuarded = "Guarded"
	// ConditionWeightsValid is False for a ClassKind with a class whose weight
	// cannot be read and so counts as 1.
	ConditionWeightsValid = "WeightsValid"
	// ConditionLabelsHeld is False for a ClassKind with a class that has too many
	// labels, and so is offered to no claim.
	ConditionLabelsHeld = "LabelsHeld"
	// ConditionLateBinding is True for a ClaimKind with BindLater whose waiting
	// claims are bound when there is a class for them.
	ConditionLateBinding = "LateBinding"
	// ConditionClaimsCounted is True for a ClaimKind with LeastClaims whose claims
	// are counted.
	ConditionClaimsCounted = "ClaimsCounted"

	// ReasonServed says that claims are bound, or classes offered, as registered.
	ReasonServed = "Served"
	// ReasonNotInstalled says that the API server serves no such resource.
	ReasonNotInstalled = "NotInstalled"
	// ReasonUnsuitable says that the resource is served, but cannot be created
	// (a claim kind) or listed and watched (a class kind).
	ReasonUnsuitable = "Unsuitable"
	// ReasonNotPermitted says that classbind may not list and watch the resource.
	ReasonNotPermitted = "NotPermitted"
	// ReasonNotSynced says that the API server has not yet listed the classes,
	// or that the webhook of the claim kind has not yet been configured.
	ReasonNotSynced = "NotSynced"
	// ReasonStale says that classes were listed once, that the API server does
	// not answer any more, and that the last known classes are still offered.
	ReasonStale = "Stale"
	// ReasonAmbiguousReference says that the form of reference cannot tell the
	// claim kind's several class kinds apart.
	ReasonAmbiguousReference = "AmbiguousReference"
	// ReasonUnknownValue says that this release of classbind does not know the value
	// of a field of the ClaimKind, which another release accepted.
	ReasonUnknownValue = "UnknownValue"

	// ReasonClassKindMissing says that the classes of a class kind that serves the
	// claim kind were offered before, and that this replica does not know them yet.
	ReasonClassKindMissing = "ClassKindMissing"

	// ReasonTooLarge says that the webhook configuration has no room for the entry
	// of the kind, so that the API server does not ask us.
	ReasonTooLarge = "TooLarge"

	// ReasonOneDefault, ReasonNoDefault and ReasonSeveralDefaults count a claim kind's default classes.
	ReasonOneDefault      = "OneDefault"
	ReasonNoDefault       = "NoDefault"
	ReasonSeveralDefaults = "SeveralDefaults"

	// ReasonWatched says that all claims of the kind are known.
	ReasonWatched = "Watched"

	// ReasonConfigured and ReasonNotConfigured say whether the webhook
	// configuration has an entry for the class kind.
	ReasonConfigured    = "Configured"
	ReasonNotConfigured = "NotConfigured"

	// ReasonWeightsValid and ReasonMalformedWeight say whether all weights can be read.
	ReasonWeightsValid    = "WeightsValid"
	ReasonMalformedWeight = "MalformedWeight"

	// ReasonLabelsHeld and ReasonTooManyLabels say whether the labels of all classes are held.
	ReasonLabelsHeld    = "LabelsHeld"
	ReasonTooManyLabels = "TooManyLabels"
)

// Reasons of the events on claims, written by classbind's leader.
const (
	// EventBoundToClass says to which class a claim that waited was bound.
	EventBoundToClass = "BoundToClass"
	// EventNoMatchingClass says, once, why a claim waits.
	EventNoMatchingClass = "NoMatchingClass"
)

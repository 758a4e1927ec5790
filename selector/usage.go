package selector

// Write is one that makes a claim use a class, or use more of it. The API server stores it once at most.
type Write struct {
	// ClaimKind, Namespace, Name and UID of the claim.
	ClaimKind, Namespace, Name, UID string
	// Base is the resourceVersion of the claim that is updated, empty for a creation.
	Base string
}

// Usage is how much the claims of one class use, as a view of them shows it.
type Usage struct {
	Used int64
	// Namespaces have the same by namespace, where the class has a limit for that.
	Namespaces map[string]int64
	// Versions are the resourceVersions of the view, by ClaimKind.
	Versions map[string]uint64
	// Shown are the writes of which the view shows what became: the claim is there at a later version than the base, or is gone.
	Shown map[Write]bool
}

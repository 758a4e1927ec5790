// Package selector chooses the class of a claim. It is only the engine: it knows nothing of admission or of a cluster, and
// gets the time and its randomness from its caller. So a decision can be made again, and explained, anywhere.
//
// # What a claim gets
//
//	the claim                                  the outcome
//	has a class reference, or a skipIfSet      Untouched: classbind does not bind it
//	lacks a parent or a selector, where its    the same
//	  kind leaves such claims alone
//	selector with labels and/or expressions    one of the classes, of every class kind, that match all of it
//	selector {}                                one of all classes
//	no selector                                one of the classes marked default, of its own namespace or else of all;
//	                                           one of all classes, or the only one, where its kind says so
//	malformed selector                         an error that names the field
//
// If a class kind is namespaced, a claim is offered the classes of the namespaces that its ClaimKind says, by default those of its own. No
// text of a decision, which the claim's author may read, names or counts the others.
//
// A field that is null counts as absent, and any other value as set: the empty storageClassName of a PersistentVolumeClaim means that it
// wants no class. Where the kind says so, an empty reference counts as absent, and what is [Given] of it drops the classes that do not
// agree.
//
// The tests of the kind ([Test]) drop some of these candidates. The first that drops one gives the reason. Then:
//
//	candidates left                            the outcome
//	none                                       Unmatched; [Decision.Denied] reports whether the claim is refused
//	one                                        Bound to it
//	several                                    Bound to the one that the strategy draws
//	several, marked default                    the same, and [Decision.Warning] says so
//
// A gate, which is a test that asks others, may drop the class that is drawn. Then the claim gets the next in the order of the draw.
// [Decider] has the whole order.
//
// # The draw
//
// Weighted rendezvous hashing (Thaler and Ravishankar 1998, "Using name-based mappings to increase hit rates"; weighted as in Schindelhauer
// and Schomaker 2005, "Weighted distributed hash tables"): a candidate's key is -ln(u)/weight with u = hash(seed, candidate) in (0,1), and
// the smallest key wins. With a fresh seed that is weighted random choice; with the identity of the claim, or of its group, as seed it is
// the same draw made reproducible, and a new class takes only the share that is its own. Equal keys go to the class that is first by class
// kind, namespace and name. LeastClaims draws in this way only among the candidates with the fewest claims, which a [Tally] counts, and
// RoundRobin among those that have waited longest.
package selector

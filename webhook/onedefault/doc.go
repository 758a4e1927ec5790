// Package onedefault keeps at most one default class per claim kind, however
// many API servers and replicas of ours are asked at once.
//
// Admission alone cannot: between the look at what there is and the write that
// it allows, another request may be allowed the same. So a
// coordination.k8s.io/v1 Lease per claim kind records who was last admitted as
// its default. Whoever wants to be the next has to write that Lease, with the
// resourceVersion that it read, and may do so only if what it read can no
// longer become default:
//
//	the Lease                      the class that it names, read live    then
//	is free                                                              take it
//	names the class itself (uid)                                         take it, keep the newer base
//	names another                  is default                            refuse
//	names another, updated         is gone, another (uid), or not at     take it: the API server stores an
//	                               the version that admission saw        update on that version alone
//	names another, created         is there (uid)                        take it: it landed, and is default no more
//	names another                  else                                  it may be in flight: refuse for now, or
//	                                                                     take it one in-flight window after the
//	                                                                     Lease was written
//
// A default that no Lease names, because it was made before there was one, is in
// the way as well, as long as it is one.
//
// A class that serves several claim kinds takes their Leases in the order of
// their names, and puts back those that it took if it is refused another.
//
// Nothing is ever released or cleaned up: the next request finds out by itself
// what became of the last. Attempt is the protocol as a state machine without
// any input or output, which the tests run through every interleaving; Protocol
// runs it on a cluster.
package onedefault

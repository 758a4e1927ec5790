// Package onedefault keeps at most one default class per seat, however many API servers and replicas of ours are involved, and even if
// reviews are forged.
//
// A seat is what one default is guaranteed for: a claim kind, also a namespace if claims are offered only the classes of their own
// namespace, and also a partition if the claim kind has partitions. A class may take several seats, and an update may move it to others. To
// move there is to become default there.
//
// Admission alone cannot do this: after it has looked for a default, and before the class that it allows is stored, it may allow another.
// So a coordination.k8s.io/v1 Lease per seat records the class that was last admitted as its default, and every admitted write of that
// class that may yet be stored. The next class has to write that Lease, with the resourceVersion that was read, and may do so only if
// nothing that was read can yet become default:
//
//	the Lease of a seat     each write that it records                                          then
//	is free                                                                                     take it
//	names the class itself  (name and uid) keep those that may be in flight                     take it, and add ours
//	names another           that class is default of this seat, read live                       refuse
//	names another           is an update of a class that is gone, is another (uid), or is       drop the write: the API server stores
//	                        not at the version to be updated                                    an update on that version alone
//	names another           is a creation of a class that is there, or was seen there (uid)     drop the write: it landed, and the class
//	                                                                                            is no longer default of this seat
//	names another           was seen for one in-flight window                                   drop the write: it did not land
//	names another           otherwise                                                           it may be in flight: refuse for now
//
// If all writes are dropped, the Lease counts as free. A default that no Lease names, because it is older than the Lease, stands in the
// way, too, while it is default.
//
// # What it trusts
//
// Anybody who reaches the port can send any review, so a request is not trusted. The class that it would update must exist with the uid and
// the version that it names, and the class that it would create must not exist. So a write that cannot be stored takes no seat. Two
// defaults are kept apart because a write is dropped only for what the API server itself shows, or for time, or by the attempt that
// recorded it, under an id that no review can name. The holder is the request's own class only if class and uid are equal. Where the class
// is the default of a seat already, nothing is written to its Lease, because the write that made it default keeps others away. This is read
// live, too, for each seat: a class may be the default of one, and not yet of another. So a forged review can hold a seat for one window,
// and no longer.
//
// Other clocks are not trusted, either: a replica counts the window from when it saw a write recorded, which is after it was admitted. It
// watches the Leases, so it mostly sees a write at once. A replica that has just started takes every write for new, and may make a request
// wait for one that is long over. So where no replica lives for a whole window, a request may wait without end.
//
// A sighting is not handed on. The Lease could record the time of a write, but then a clock that is wrong by more than a window could drop
// a write that is in flight, and make two defaults. Whether clocks agree could only be learnt by comparing them for as long as it takes to
// count the window.
//
// # What is left behind
//
// A request reads and judges all of its seats before it writes any, so a refused request has mostly written nothing. If another overtakes
// it, it takes its own writes out again, and deletes a Lease that records no other. After an admitted write, the next request finds out by
// itself what became of it.
//
// A Lease whose writes are all dropped is as good as none, so the leader deletes it: classes can be moved through any number of partitions.
// Like a request, it reads the Lease first and then its holder, and deletes only the version that it read. A request that read the same
// version finds it gone, and starts again. One that read no Lease may create it even if there was one meanwhile: when that was deleted, the
// seat had no default, and whatever takes the seat later has to create the Lease, too.
//
// Attempt is the protocol as a state machine without I/O. The tests run it through every interleaving, with a forger and the leader among
// the requests. Cluster runs it on an API server.
package onedefault

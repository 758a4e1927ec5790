// Package onedefault keeps at most one default class per seat, however many API
// servers and replicas of ours are asked at once, and whoever else asks.
//
// A seat is what one default is guaranteed for: a claim kind, and a namespace
// where claims are offered the classes of their own alone.
//
// Admission alone cannot: between the look at what there is and the write that
// it allows, another request may be allowed the same. So a
// coordination.k8s.io/v1 Lease per seat records the class that was last admitted
// as its default, and every write of that class that was admitted and may yet be
// stored. Whoever wants to be the next has to write that Lease, with the
// resourceVersion that it read, and may do so only if nothing that it read can
// yet become default:
//
//	the Lease               each write that it records           then
//	is free                                                      take it
//	names the class itself  keep those that may be in flight     take it, and add ours
//	(name and uid)
//	names another           that class is default, read live     refuse
//	names another           is an update of a class that is      drop the write: the API server stores an
//	                        gone, is another (uid), or is not    update on that version alone
//	                        at the version to be updated
//	names another           is a creation of a class that is     drop the write: it landed, and the class
//	                        there, or was seen there (uid)       is default no more
//	names another           was seen for one in-flight window    drop the write: it did not land
//	names another           else                                 it may be in flight: refuse for now
//
// Where all writes are dropped, the Lease is as good as free. A default that no
// Lease names, because it was made before there was one, is in the way as well, as
// long as it is one.
//
// # Whom it believes
//
// Anybody who reaches the port can send any review, so a request is not believed.
// The class that it would update has to be there with the uid and the version that
// it says, and the one that it would create must not be there. That spares seats
// what cannot be stored; what keeps two defaults apart is that a write is dropped
// for what the API server itself shows, or for time, or by the attempt that recorded
// it, under an id that no review can name. A holder is the request's own class only if
// class and uid are equal. Where the class turns out to be default already, nothing
// is written, because the write that made it so is what keeps others away. So a
// forged review can hold a seat for one window, and no more.
//
// No clock of another is believed, either: a replica counts the window from when
// it saw a write recorded, which is after it was admitted. It watches the Leases,
// so that this is mostly the moment of the write. One that has just started takes
// everything for new, and may keep a request waiting for what is long over.
//
// # What is left behind
//
// A request reads and judges all of its seats before it writes any, so what is
// refused has mostly written nothing. If it was overtaken between, it takes its
// own writes out again. What is admitted is never released or cleaned up: the next
// request finds out by itself what became of it.
//
// Attempt is the protocol as a state machine without any input or output, which
// the tests run through every interleaving, with a forger among them; Protocol
// runs it on a cluster.
package onedefault

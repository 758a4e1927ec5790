// Package capacity keeps the claims of a class within what the class holds, at every moment, however many API servers and replicas of ours
// are involved.
//
// Each class whose capacity is enforced has a [Ledger]: what its claims used when the leader last counted them, and a reservation for each
// write that makes a claim use more and may yet be stored. A replica changes a ledger by compare-and-swap, before it answers:
//
//	a write of a claim                       the replica
//	fits beside what is used and reserved    adds a reservation, and lets it pass
//	has a reservation already                does the same: the window of that one begins anew
//	does not fit                             reads the ledger live, and refuses it
//	uses no more than before                 lets it pass
//	is of a class whose ledger is closed     refuses it for now
//
// Only the leader lowers what is used, and only the leader ends reservations, in one write:
//
//	of a claim, its view                     the leader
//	shows it later than the write's base     counts it as it is, and ends the reservation
//	shows that it was deleted                ends the reservation
//	does not show the write, and its window  reads the claim live, and ends the reservation if the write
//	is over                                  is not stored
//	is older than the last that was counted  changes nothing
//
// So at any moment, what is stored is at most what is used and reserved. A write is known by its claim kind, the uid of the claim, and the
// resourceVersion that it updates: the API server stores one write on each version. The window is longer than the longest request of an API
// server. Each leader counts it from when it first saw the reservation, so clocks need not agree.
//
// # Where a ledger begins
//
// A ledger is closed until no write can be in flight for which it has no reservation: for one window after API servers were told to ask
// about all writes, or after it was lost. Then the leader lists the claims. The ledger of a class that is created later is opened at once,
// because a claim that names a class without a ledger is refused.
//
// Somebody who edits a ledger spoils its seal, and it counts as closed. Whoever may write ledgers and makes a seal is trusted. Kubernetes
// lets only admins of classbind's namespace do so.
//
// # What it costs others
//
// A review can be forged by anybody who reaches the port without a client certificate. What it reserves is never stored, and ends with the
// window. A namespace may take half of what a ledger has for reservations, and its own part of the capacity. A claim that needs room in
// several classes gets it in all, or is refused. What it reserved before that ends with the window.
//
// The tests run the Ledger through every interleaving, with two leaders, a forger and lost ledgers among the requests. They show that each
// rule is needed.
package capacity

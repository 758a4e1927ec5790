package selector

import "hash/maphash"

// placeSeed is another one in each process: authors of classes and of claims choose the
// names and the labels, and shall not choose where in a dict or a table they are. Many
// in one place would be looked through one by one.
var placeSeed = maphash.MakeSeed()

// placeOf a class, whatever its version. Where a reference says no kind, that and the
// group are empty.
func placeOf(group, kind, namespace, name string) uint64 {
	return maphash.Comparable(placeSeed, [...]string{group, kind, namespace, name})
}

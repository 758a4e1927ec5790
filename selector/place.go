package selector

import "hash/maphash"

// placeSeed differs from process to process: authors of classes and claims choose names
// and labels, and must not choose their places in a trie or a table. Many in one place
// would be searched one by one.
var placeSeed = maphash.MakeSeed()

// placeOf a class, whatever its version. What a form of reference does not name, group or
// kind, is empty.
func placeOf(group, kind, namespace, name string) uint64 {
	return maphash.Comparable(placeSeed, [...]string{group, kind, namespace, name})
}

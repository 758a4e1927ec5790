package inventory

import (
	"cmp"
	"slices"
	"strings"
)

// list is immutable and sorted by names: a base, and a short list of what changed since the base was made. Readers use it without a lock
// while a writer makes the next. The zero value is empty.
type list[T named] struct {
	base []T
	// gone are the positions of what is no longer in the base, ascending, and added is what is not in it yet, sorted.
	gone  []int
	added []T
}

type named interface{ name() className }

// minChanged is how many changes a base may have at least before it is made again. Above, these are as many as the square root of its
// length: to go through them costs little, and to make a base of 100,000 costs every change as little.
const minChanged = 16

// newList takes the slice over. No two may have the same name.
func newList[T named](all []T) list[T] {
	slices.SortFunc(all, func(a, b T) int { return a.name().compare(b.name()) })
	return list[T]{base: all}
}

func position[T named](sorted []T, n className) (at int, found bool) {
	return slices.BinarySearchFunc(sorted, n, func(t T, n className) int { return t.name().compare(n) })
}

func (l *list[T]) len() int { return len(l.base) - len(l.gone) + len(l.added) }

// find what has this name.
func (l *list[T]) find(n className) (found T, ok bool) {
	if at, ok := position(l.added, n); ok {
		return l.added[at], true
	}
	if at, ok := position(l.base, n); ok && !slices.Contains(l.gone, at) {
		return l.base[at], true
	}
	return found, false
}

// with returns the list with this in the place of what has the name, if there is anything; without it, nothing has the name.
func (l list[T]) with(n className, now ...T) list[T] {
	others := slices.DeleteFunc(slices.Clone(l.added), func(t T) bool { return t.name() == n })
	before, _ := position(others, n)
	l.added = slices.Insert(others, before, now...)
	if at, ok := position(l.base, n); ok {
		l.gone = append(slices.Clip(l.gone), at)
		slices.Sort(l.gone)
		l.gone = slices.Compact(l.gone)
	}
	if n := max(len(l.added), len(l.gone)); l.len() > 0 && (n <= minChanged || n*n <= len(l.base)) {
		return l
	}
	return list[T]{base: l.all()}
}

// without what has a name.
func (l list[T]) without(n className) list[T] {
	if _, ok := l.find(n); !ok {
		return l
	}
	return l.with(n)
}

// all in their order.
func (l *list[T]) all() []T {
	all := slices.Grow([]T(nil), l.len())
	l.each(func(t T) { all = append(all, t) })
	return all
}

// each visits all in their order.
func (l *list[T]) each(visit func(T)) {
	from, gone := 0, l.gone
	visitTo := func(to int) {
		for ; from < to; from++ {
			if len(gone) > 0 && gone[0] == from {
				gone = gone[1:]
			} else {
				visit(l.base[from])
			}
		}
	}
	for _, t := range l.added {
		at, _ := position(l.base, t.name())
		visitTo(at)
		visit(t)
	}
	visitTo(len(l.base))
}

// in visits those of a namespace in their order, until a visit returns false, as it then does itself.
func (l *list[T]) in(namespace string, visit func(T) bool) bool {
	at, to := l.span(namespace)
	first, _ := position(l.added, className{namespace: namespace})
	for added := l.added[first:]; ; {
		isAdded := len(added) > 0 && added[0].name().namespace == namespace
		switch {
		case isAdded && (at == to || added[0].name().compare(l.base[at].name()) <= 0):
			if !visit(added[0]) {
				return false
			}
			added = added[1:]
		case at == to:
			return true
		default:
			if !slices.Contains(l.gone, at) && !visit(l.base[at]) {
				return false
			}
			at++
		}
	}
}

// span of a namespace in the base.
func (l *list[T]) span(namespace string) (from, to int) {
	from, _ = position(l.base, className{namespace: namespace})
	n, _ := slices.BinarySearchFunc(l.base[from:], namespace, func(t T, namespace string) int {
		return cmp.Or(strings.Compare(t.name().namespace, namespace), -1)
	})
	return from, from + n
}

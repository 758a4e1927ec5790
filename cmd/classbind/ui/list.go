package ui

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// pageSize is how many rows are shown at once.
const pageSize = 50

// list is what is shown of many rows. It is searched and paged by parameters of the URL that begin with its ID.
type list[T any] struct {
	// ID of the list in the page, and What its rows are.
	ID, What, Query string
	// Found of Total rows match the query. Shown are First to Last, from 1.
	Found, Total, First, Last int
	Rows                      []T
	// Previous and Next are URLs, empty where there is no page.
	Previous, Next string
	// Others are the other parameters of the URL.
	Others url.Values
}

func newList[T any](u *url.URL, id, what string, all []T, text func(T) string) list[T] {
	query := u.Query()
	search, at := id+"-search", id+"-page"
	l := list[T]{ID: id, What: what, Query: strings.TrimSpace(query.Get(search)), Total: len(all)}
	found := all
	if words := strings.Fields(strings.ToLower(l.Query)); len(words) > 0 {
		found = nil
		for _, row := range all {
			lower := strings.ToLower(text(row))
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(lower, word) }) {
				found = append(found, row)
			}
		}
	}
	l.Found = len(found)
	pages := max(1, (l.Found+pageSize-1)/pageSize)
	page, _ := strconv.Atoi(query.Get(at)) // Else it is the first.
	page = min(max(1, page), pages)
	from, to := (page-1)*pageSize, min(page*pageSize, l.Found)
	l.Rows, l.First, l.Last = found[from:to], min(from+1, l.Found), to
	link := func(page int) string {
		if page < 1 || page > pages {
			return ""
		}
		query.Set(at, strconv.Itoa(page))
		return "?" + query.Encode() + "#" + id
	}
	l.Previous, l.Next = link(page-1), link(page+1)
	query.Del(at)
	query.Del(search)
	l.Others = query
	return l
}

// Long lists can be searched.
func (l list[T]) Long() bool { return l.Total > 10 || l.Query != "" }

package output

import (
	"fmt"
	"strings"
)

// Count of things, with their noun in the singular: 1 claim, 2 claims, 3 classes.
func Count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

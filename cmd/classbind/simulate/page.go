package simulate

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

// page shows a Report. It has no script, and a policy that allows none: names in it are those of others.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"change": changeText,
	"width":  func(share float64) string { return fmt.Sprintf("%.1f", share) },
}).Parse(pageText))

// writePage writes the report as HTML, in one file.
func (r *Report) writePage(out io.Writer) error {
	if err := page.Execute(out, r); err != nil {
		return fmt.Errorf("cannot print: %w", err)
	}
	return nil
}

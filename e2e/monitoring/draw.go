package main

import (
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The picture, and the frame in it of what is drawn, in pixels.
const (
	width, height            = 880, 330
	left, top, right, bottom = 64, 48, width - 20, height - 62
)

// colours that people who see few colours can tell apart (Okabe and Ito 2008).
var colours = []string{"#009e73", "#e69f00", "#d55e00", "#56b4e9", "#cc79a7", "#0072b2", "#999999", "#f0e442"}

// draw a panel as an SVG, which says nothing that was not recorded. Lines that
// are 0 throughout are left out.
func draw(p panel, lines []line) (string, error) {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l line) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Values(l.points)), func(v float64) bool { return v > 0 })
	})
	times := steps(lines)
	if len(times) < 2 {
		return "", fmt.Errorf("the panel %q has nothing to show: let more happen, and for longer", p.Title)
	}
	stacked := p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	highest := 0.0
	floor, heights := make([][]float64, len(lines)), make([][]float64, len(lines))
	for i, l := range lines {
		floor[i], heights[i] = make([]float64, len(times)), make([]float64, len(times))
		for j, t := range times {
			if stacked && i > 0 {
				floor[i][j] = heights[i-1][j]
			}
			value := l.points[t]
			if math.IsNaN(value) {
				value = 0
			}
			heights[i][j] = floor[i][j] + value
			highest = max(highest, heights[i][j])
		}
	}
	unit := niceUnit(highest)
	limit := unit * math.Ceil(highest/unit)
	x := func(j int) float64 {
		return left + float64(times[j]-times[0])/float64(times[len(times)-1]-times[0])*(right-left)
	}
	y := func(v float64) float64 { return bottom - v/limit*(bottom-top) }

	s := &strings.Builder{}
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#333">`+"\n", width, height)
	fmt.Fprintf(s, `<title>%s</title>`+"\n", html.EscapeString(p.Title))
	fmt.Fprintf(s, `<rect width="%d" height="%d" rx="4" fill="#fff" stroke="#ccc"/>`+"\n", width, height)
	fmt.Fprintf(s, `<text x="16" y="28" font-size="15" font-weight="bold">%s</text>`+"\n", html.EscapeString(p.Title))
	for v := 0.0; v <= limit*1.001; v += unit {
		fmt.Fprintf(s, `<path d="M%d %.1fH%d" stroke="#e4e4e4"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left, y(v), right, left-8, y(v)+4, format(v, p.FieldConfig.Defaults.Unit))
	}
	seconds := float64(times[len(times)-1]-times[0]) / 1000
	for each, at := niceUnit(seconds), 0.0; at <= seconds; at += each {
		fmt.Fprintf(s, `<text x="%.1f" y="%d" text-anchor="middle">%s s</text>`+"\n", left+at/seconds*(right-left), bottom+18, strconv.FormatFloat(at, 'f', -1, 64))
	}
	for i := range lines {
		colour := colours[i%len(colours)]
		path := &strings.Builder{}
		for j := range times {
			fmt.Fprintf(path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[j == 0], x(j), y(heights[i][j]))
		}
		if stacked {
			for j := range slices.Backward(times) {
				fmt.Fprintf(path, "L%.1f %.1f", x(j), y(floor[i][j]))
			}
			fmt.Fprintf(s, `<path d="%sZ" fill="%s" fill-opacity="0.8"/>`+"\n", path, colour)
		} else {
			fmt.Fprintf(s, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path, colour)
		}
	}
	at := left
	for i, l := range lines {
		fmt.Fprintf(s, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", at, height-28, colours[i%len(colours)], at+18, height-18, html.EscapeString(l.name))
		at += 40 + 7*len(l.name)
	}
	s.WriteString("</svg>\n")
	return s.String(), nil
}

// steps for which there is a value.
func steps(lines []line) []int64 {
	all := map[int64]bool{}
	for _, l := range lines {
		for t := range l.points {
			all[t] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// niceUnit is 1, 2 or 5 times a power of ten, of which four to ten are the number.
func niceUnit(number float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(number/4)))
	for _, times := range []float64{5, 2} {
		if 4*times*power <= number {
			return times * power
		}
	}
	return power
}

// format a value with its unit, of those that our panels have.
func format(v float64, unit string) string {
	if unit != "s" || v == 0 {
		number := strconv.FormatFloat(v, 'g', 6, 64)
		if unit == "reqps" {
			return number + "/s"
		}
		return number
	}
	switch {
	case v < 1e-3:
		return strconv.FormatFloat(v*1e6, 'g', 3, 64) + " µs"
	case v < 1:
		return strconv.FormatFloat(v*1e3, 'g', 3, 64) + " ms"
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " s"
}

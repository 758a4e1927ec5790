package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// dashboard is what is used here of Grafana's.
type dashboard struct {
	Panels []panel `json:"panels"`
}

type panel struct {
	Title       string   `json:"title"`
	Targets     []target `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit   string `json:"unit"`
			Custom struct {
				Stacking struct {
					Mode string `json:"mode"`
				} `json:"stacking"`
			} `json:"custom"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

type target struct {
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

func readDashboard(component string) (dashboard, error) {
	d := dashboard{}
	text, err := os.ReadFile(filepath.Join(component, "dashboard.json"))
	if err != nil {
		return d, fmt.Errorf("cannot read the dashboard: %w", err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("cannot read the dashboard: %w", err)
	}
	return d, nil
}

func (d dashboard) panel(title string) (panel, error) {
	titles := make([]string, len(d.Panels))
	for i, p := range d.Panels {
		if p.Title == title {
			return p, nil
		}
		titles[i] = p.Title
	}
	return panel{}, fmt.Errorf("there is no panel %q: take one of %q", title, titles)
}

// promQL is the expression without Grafana's variables: for every claim kind, and
// with the range that Grafana takes for one scrape every so often.
func (t target) promQL(every time.Duration) string {
	return strings.NewReplacer("$claim_kind", ".*", "$__rate_interval", (4 * every).String()).Replace(t.Expr)
}

// rules are the alerts, in the form of Prometheus' own rule files.
func rules(component string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(component, "prometheusrule.yaml"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the alerts: %w", err)
	}
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("cannot read the alerts: %w", err)
	}
	return yaml.JSONToYAML(object.Spec)
}

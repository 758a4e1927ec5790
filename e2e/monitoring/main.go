// Command monitoring draws a panel of the dashboard in deploy/ from a run of
// classbind: it scrapes replicas into Prometheus' own database, has Prometheus'
// own engine answer what the panel asks for, and draws that. Its tests have
// Prometheus' own parser read the alerts and the dashboard.
//
// It is a module of its own because Prometheus' dependencies would move those of
// the Kubernetes that e2e builds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	component := flag.String("component", "../../deploy/components/monitoring", "`folder` of the dashboard")
	title := flag.String("panel", "Claims by outcome", "`title` of the panel")
	replicas := flag.String("replicas", "http://localhost:8080/metrics", "`URLs` of the replicas' metrics, with commas between them")
	every := flag.Duration("every", time.Second, "`time` from one scrape to the next")
	lasting := flag.Duration("for", 2*time.Minute, "`time` for which to scrape; an interrupt ends it, too")
	output := flag.String("output", "panel.svg", "`file` to write")
	flag.Parse()

	dashboard, err := readDashboard(*component)
	if err != nil {
		return err
	}
	panel, err := dashboard.panel(*title)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "classbind-monitoring-")
	if err != nil {
		return fmt.Errorf("cannot make a folder for the database: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *lasting)
	defer cancel()
	recorded, err := record(ctx, dir, *every, strings.Split(*replicas, ","))
	if err != nil {
		return err
	}
	defer func() { _ = recorded.db.Close() }()
	lines, err := recorded.ask(context.WithoutCancel(ctx), panel)
	if err != nil {
		return err
	}
	picture, err := draw(panel, lines)
	if err != nil {
		return err
	}
	if err := os.WriteFile(*output, []byte(picture), 0o644); err != nil { //nolint:gosec // A picture is for all to see.
		return fmt.Errorf("cannot write the picture: %w", err)
	}
	return nil
}

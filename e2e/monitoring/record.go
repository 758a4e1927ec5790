package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
)

// recording is what Prometheus would have stored, in its own database.
type recording struct {
	db         *tsdb.DB
	begin, end time.Time
	every      time.Duration
}

// record scrapes replicas, as the ServiceMonitor has Prometheus do it but more
// often, until the context ends.
func record(ctx context.Context, dir string, every time.Duration, replicas []string) (*recording, error) {
	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return nil, fmt.Errorf("cannot open a database: %w", err)
	}
	r := &recording{db: db, begin: time.Now(), every: every}
	tick := time.NewTicker(every)
	defer tick.Stop()
	reached := 0
	for {
		for _, address := range replicas {
			err := r.scrape(ctx, address)
			if err == nil {
				reached++
			} else if ctx.Err() == nil && reached == 0 {
				return nil, errors.Join(err, db.Close())
			}
		}
		r.end = time.Now()
		select {
		case <-ctx.Done():
			return r, nil
		case <-tick.C:
		}
	}
}

func (r *recording) scrape(ctx context.Context, address string) error {
	at, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("cannot read %q as a URL: %w", address, err)
	}
	appender := r.db.Appender(context.WithoutCancel(ctx))
	now := time.Now().UnixMilli()
	add := func(l labels.Labels, value float64) error {
		b := labels.NewBuilder(l)
		b.Set("job", "classbind").Set("namespace", "classbind-system").Set("instance", at.Host).Set("pod", at.Host)
		_, err := appender.Append(0, b.Labels(), now, value)
		return err
	}
	body, err := get(ctx, address)
	up := 1.0
	if err != nil {
		up = 0
	}
	if err := add(labels.FromStrings(model.MetricNameLabel, "up"), up); err != nil {
		return fmt.Errorf("cannot store a sample: %w", err)
	}
	parser := textparse.NewPromParser(body, labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("cannot read the metrics of %s: %w", address, err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := parser.Series()
		var l labels.Labels
		parser.Labels(&l)
		if err := add(l, value); err != nil {
			return fmt.Errorf("cannot store a sample: %w", err)
		}
	}
	return errors.Join(err, appender.Commit())
}

func get(ctx context.Context, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("cannot scrape: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("cannot scrape %s: %s", address, response.Status)
	}
	return io.ReadAll(response.Body)
}

// line of a panel: a value for each step, from the beginning on.
type line struct {
	name   string
	points map[int64]float64 // by milliseconds since 1970
}

// ask for a panel's lines, in the order of their names, as Grafana does.
func (r *recording) ask(ctx context.Context, p panel) ([]line, error) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute})
	var lines []line
	for _, target := range p.Targets {
		query, err := engine.NewRangeQuery(ctx, r.db, nil, target.promQL(r.every), r.begin.Add(4*r.every), r.end, r.every)
		if err != nil {
			return nil, fmt.Errorf("cannot ask for %q: %w", target.Expr, err)
		}
		matrix, err := query.Exec(ctx).Matrix()
		if err != nil {
			return nil, fmt.Errorf("cannot ask for %q: %w", target.Expr, err)
		}
		for _, series := range matrix {
			l := line{name: legend(target.LegendFormat, series.Metric), points: map[int64]float64{}}
			for _, f := range series.Floats {
				l.points[f.T] = f.F
			}
			lines = append(lines, l)
		}
		query.Close()
	}
	sort.Slice(lines, func(i, j int) bool { return lines[i].name < lines[j].name })
	return lines, nil
}

func legend(format string, metric labels.Labels) string {
	metric.Range(func(l labels.Label) { format = strings.ReplaceAll(format, "{{"+l.Name+"}}", l.Value) })
	return format
}

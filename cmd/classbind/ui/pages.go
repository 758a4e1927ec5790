package ui

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/classbind/classbind/cmd/classbind/explain"
	"github.com/classbind/classbind/cmd/classbind/simulate"
	"github.com/classbind/classbind/cmd/classbind/status"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	// heartbeat is the pause between two signs of life of a stream, which show that somebody looks.
	heartbeat = 2 * time.Second
	// writeTimeout is for one sign of life.
	writeTimeout = 10 * time.Second
	// simulationTimeout is for one answer to "what if".
	simulationTimeout = 5 * time.Minute
	// maxMade is how many claims are made up at most.
	maxMade = 100_000
)

//go:embed assets
var assets embed.FS

// screens by the name of their template.
var screens = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	for _, name := range []string{"kinds", "kind", "class", "claims", "claim", "whatif", "message"} {
		layout := template.New("layout.html").Funcs(functions)
		all[name] = template.Must(layout.ParseFS(assets, "assets/layout.html", "assets/"+name+".html"))
	}
	return all
}()

var functions = template.FuncMap{
	"count":   count,
	"percent": func(share float64) string { return strconv.FormatFloat(share, 'f', 1, 64) },
	"width": func(share, largest float64) string {
		return strconv.FormatFloat(100*share/max(largest, 1e-9), 'f', 2, 64)
	},
	"kindURL":    func(name string) string { return "kind?" + url.Values{"name": {name}}.Encode() },
	"claimsURL":  func(kind string) string { return "claims?" + url.Values{"kind": {kind}}.Encode() },
	"classURL":   classURL,
	"claimURL":   claimURL,
	"named":      named,
	"parts":      parts,
	"odds":       explain.Percentage,
	"share":      func(o selector.Odds) float64 { return 100 * float64(o.Share) / float64(max(o.Total, 1)) },
	"first":      func(n int, rows []selector.Candidate) []selector.Candidate { return rows[:min(n, len(rows))] },
	"evaluation": explain.EvaluationText,
	"isCommand":  isCommand,
	"isPage":     func(word string) bool { return word == cluster.InstallPage },
	"words":      strings.Fields,
}

func count(n any) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

type pages struct {
	http.ServeMux

	cache *cache
	// namespace of objects that name none.
	namespace string
	streams   chan struct{}
	// simulating holds one request at a time.
	simulating chan struct{}
}

func newPages(c *cache, namespace string) *pages {
	p := &pages{cache: c, namespace: namespace, streams: make(chan struct{}, maxStreams), simulating: make(chan struct{}, 1)}
	for _, name := range []string{"style.css", "live.js"} {
		p.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, assets, "assets/"+name) })
	}
	p.HandleFunc("GET /events", p.events)
	p.HandleFunc("POST /reload", p.reload)
	for pattern, screen := range map[string]func(*page, *http.Request) error{
		"GET /{$}": p.kinds, "GET /kind": p.kind, "GET /class": p.class, "GET /claims": p.claims, "GET /claim": p.claim,
		"GET /whatif": p.whatIf, "POST /whatif": p.whatIf,
		"GET /": func(*page, *http.Request) error { return notFound("There is no such page.") },
	} {
		p.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, screen) })
	}
	return p
}

type page struct {
	// Screen is the name of a template.
	Screen, Title string
	Version       int
	// Live pages are replaced by what they have become.
	Live bool
	// At is when the cluster was read, Age says it in words, and Stale why not since.
	At         time.Time
	Age, Stale string
	Body       any

	status   int
	snapshot *snapshot
}

// message is the Body of a screen that says why there is nothing to see, and what to do.
type message struct {
	Text, Detail, Do string
}

// notFound is an error of the reader.
type notFound string

func (e notFound) Error() string { return string(e) }

// serve a screen, or the message why there is none.
func (p *pages) serve(w http.ResponseWriter, r *http.Request, screen func(*page, *http.Request) error) {
	state, _ := p.cache.now()
	shown := &page{
		Version: state.version, Age: state.age(), Live: r.Method != http.MethodPost, snapshot: state.snapshot, status: http.StatusOK,
	}
	if state.err != nil {
		shown.Stale = fmt.Sprintf("Not read since, at %s: %v", state.failed.Format(time.TimeOnly), truncate.Error(state.err))
	}
	switch {
	case state.snapshot != nil:
		shown.At = state.snapshot.at
		if err := screen(shown, r); err != nil {
			shown.failed(err)
		}
	case state.err != nil:
		shown.Stale = ""
		shown.failed(state.err)
	default:
		shown.message("Reading the cluster", message{Text: "The page appears when all claims are read."})
	}
	var text bytes.Buffer
	if err := screens[shown.Screen].Execute(&text, shown); err != nil {
		http.Error(w, "cannot show the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(shown.status)
	_, _ = text.WriteTo(w)
}

func (s *page) message(title string, m message) { s.Screen, s.Title, s.Body = "message", title, m }

func (s *page) failed(err error) {
	s.status = http.StatusBadGateway
	title, m := "Not readable", message{
		Text:   "The cluster cannot be read. This page tries again.",
		Detail: truncate.Error(err).Error(), Do: "kubectl get claimkinds.classbind.io",
	}
	switch missing := notFound(""); {
	case errors.As(err, &missing):
		s.status = http.StatusNotFound
		title, m = "Not found", message{Text: missing.Error()}
	case apierrors.IsForbidden(err):
		title, m.Text = "Not allowed", "You do not have the rights to read what is registered. Ask an admin of the cluster for them:"
		m.Do = "kubectl auth can-i list claimkinds.classbind.io,classkinds.classbind.io"
	case meta.IsNoMatchError(err):
		title, m.Text, m.Do = "Not installed", "classbind is not installed in this cluster.", "install classbind: "+cluster.InstallPage
	}
	s.message(title, m)
}

type kindsBody struct {
	Kinds    list[*kind]
	Sections []*status.Section
	Findings list[status.Finding]
	Notes    list[string]
}

func (p *pages) kinds(s *page, r *http.Request) error {
	var findings []status.Finding
	var notes []string
	for _, section := range s.snapshot.status.Sections {
		findings = append(findings, section.Findings...)
		notes = append(notes, section.Notes...)
	}
	s.Screen, s.Title = "kinds", "Claim kinds"
	s.Body = kindsBody{
		Kinds:    newList(r.URL, "kinds", "claim kinds", s.snapshot.kinds, func(k *kind) string { return k.Name + " " + k.State() }),
		Sections: s.snapshot.status.Sections,
		Findings: newList(r.URL, "findings", "findings", findings, func(f status.Finding) string { return f.Where + " " + f.What }),
		Notes:    newList(r.URL, "notes", "notes", notes, func(note string) string { return note }),
	}
	return nil
}

// State of a kind in a word.
func (k *kind) State() string {
	switch {
	case len(k.Findings) > 0:
		return string(status.Broken)
	case k.Err != nil:
		return string(status.Unknown)
	}
	return string(status.OK)
}

type kindBody struct {
	*kind
	Shown   list[*class]
	Waits   list[waiting]
	Largest float64 // share of a class that is shown
}

func (p *pages) kind(s *page, r *http.Request) error {
	k, err := s.snapshot.find(r.URL.Query().Get("name"))
	if err != nil {
		return err
	}
	b := kindBody{
		kind: k,
		Shown: newList(r.URL, "classes", "classes", k.Classes, func(c *class) string {
			return strings.Join(c.Marks, " ") + " " + c.String() + " " + c.Labels
		}),
		Waits: newList(r.URL, "waiting", "claims without a class", k.Waiting, func(w waiting) string {
			return w.Claim.String() + " " + w.Gets + " " + w.Why
		}),
	}
	for _, c := range b.Shown.Rows {
		b.Largest = max(b.Largest, c.Share, c.Expected)
	}
	s.Screen, s.Title, s.Body = "kind", k.Name, b
	return nil
}

type claimBody struct {
	Name claimName
	explanation
	Candidates list[selector.Candidate]
	Dropped    list[selector.Drop]
	Near       list[selector.NearMiss]
	// Looked is how many classes the decision looked at, and Others those that the selector does not match.
	Looked, Others int
	// Notes of the stored claim, and Why it would get its class: each reason is shown once.
	Notes []string
	Why   string
}

func (p *pages) claim(s *page, r *http.Request) error {
	query := r.URL.Query()
	name := claimName{query.Get("kind"), strings.TrimSpace(query.Get("namespace")), strings.TrimSpace(query.Get("name"))}
	if _, err := s.snapshot.find(name.Kind); err != nil {
		return err
	}
	e, err := s.snapshot.explain(r.Context(), name)
	if err != nil {
		s.status = http.StatusNotFound
		s.message("Claim "+name.String(), message{Text: "The claim cannot be explained.", Detail: truncate.Error(err).Error()})
		return nil
	}
	now := &e.Fresh.Explanation
	others := len(now.NearMisses) + now.FarMisses
	s.Screen, s.Title = "claim", name.String()
	body := claimBody{
		Name: name, explanation: e,
		Candidates: newList(r.URL, "candidates", "candidates", now.Candidates, selector.Candidate.String),
		Dropped: newList(r.URL, "dropped", "dropped classes", now.Dropped, func(d selector.Drop) string {
			return d.String() + " " + d.Text
		}),
		Near: newList(r.URL, "near", "near misses", now.NearMisses, func(m selector.NearMiss) string {
			return m.String() + " " + m.Unmet.Text
		}),
		Looked: len(now.Candidates) + len(now.Dropped) + others + now.NotDefault, Others: others, Why: e.Fresh.Message,
	}
	if e.Stored.Message == e.Fresh.Message {
		body.Why = ""
	}
	body.Notes = slices.DeleteFunc(slices.Clone(e.Stored.Notes), func(note string) bool { return strings.Contains(note, e.Fresh.Message) })
	s.Body = body
	return nil
}

// whatIfBody is the Body of the form, with the answer once there is one.
type whatIfBody struct {
	Kinds                         []*kind
	Kind, Changes, Remove, Claims string
	Report                        *simulate.Report
	// Same are the kinds of the report that the change does not affect.
	Same []simulate.Kind
	Err  error
}

// whatIf predicts a change, and makes none.
func (p *pages) whatIf(s *page, r *http.Request) error {
	b := &whatIfBody{
		Kinds: s.snapshot.kinds, Kind: r.FormValue("kind"), Changes: r.PostFormValue("changes"), Remove: r.FormValue("remove"),
		Claims: r.PostFormValue("claims"),
	}
	s.Screen, s.Title, s.Body = "whatif", "What if", b
	if r.Method != http.MethodPost {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), simulationTimeout)
	defer cancel()
	select {
	case p.simulating <- struct{}{}:
		defer func() { <-p.simulating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	in := simulate.Input{}
	in.Claims, b.Err = strconv.Atoi(cmp.Or(strings.TrimSpace(b.Claims), "0"))
	if b.Err != nil || in.Claims < 0 || in.Claims > maxMade {
		b.Err = fmt.Errorf("claims to make up: %q: must be a number from 0 to %d", b.Claims, maxMade)
	}
	in.Change.Remove = strings.Fields(b.Remove)
	if b.Kind != "" {
		in.ClaimKinds = []string{b.Kind}
	}
	if b.Err == nil {
		in.Change.Manifests, b.Err = world.ParseManifests([]byte(b.Changes))
	}
	if b.Err == nil {
		in.World, b.Err = world.OfCluster(ctx, p.cache.config, p.cache.own, p.namespace)
	}
	if b.Err == nil {
		b.Report, b.Err = simulate.Run(ctx, in)
	}
	if b.Err == nil && b.Kind == "" { // Of fifty kinds, a change seldom affects more than one.
		changed := slices.DeleteFunc(slices.Clone(b.Report.Kinds), func(k simulate.Kind) bool { return !k.Changes() })
		b.Same = slices.DeleteFunc(b.Report.Kinds, func(k simulate.Kind) bool { return k.Changes() })
		b.Report.Kinds = changed
	}
	return nil
}

// reload reads the cluster now, and leads back to the page that asked, which is one of ours.
func (p *pages) reload(w http.ResponseWriter, r *http.Request) {
	p.cache.reload()
	back := &url.URL{}
	if from, err := url.Parse(r.Referer()); err == nil {
		_, screen := path.Split(from.Path)
		back.Path, back.RawQuery = screen, from.RawQuery
	}
	w.Header().Set("Location", "./"+back.String())
	w.WriteHeader(http.StatusSeeOther)
}

// events is a stream that names each new version of the state, and reports how old it is.
func (p *pages) events(w http.ResponseWriter, r *http.Request) {
	select {
	case p.streams <- struct{}{}:
		defer func() { <-p.streams }()
	default:
		http.Error(w, "Too many pages are open: close some, or reload this one.", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	to, known := http.NewResponseController(w), r.URL.Query().Get("version")
	for {
		state, changed := p.cache.now()
		text := "event: age\ndata: " + state.age() + "\n\n"
		if version := strconv.Itoa(state.version); version != known {
			text, known = text+"data: "+version+"\n\n", version
		}
		if to.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return
		}
		if _, err := w.Write([]byte(text)); err != nil || to.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-time.After(heartbeat):
		case <-r.Context().Done():
			return
		}
	}
}

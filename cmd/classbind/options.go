package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/classbind/classbind/api/v1alpha1"
)

const (
	defaultNamespace = "classbind-system"
	// podNamespaceFile has the namespace of a pod's ServiceAccount.
	podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

	selfSigned  = "self-signed"
	certManager = "cert-manager"
)

// options are the flags of serve.
type options struct {
	namespace      string
	service        string
	webhookURL     string
	webhookAddress string
	http2          bool
	probeAddress   string
	metricsAddress string
	metricsSecure  bool
	pprofAddress   string
	contention     bool
	certs          string
	certDir        string
	certDuration   time.Duration
	caDuration     time.Duration
	clientCAFile   string
	clientNames    []string
	leaderElect    bool
	shutdownDelay  time.Duration
	inFlightWindow time.Duration
	lateRate       int
	lateMemory     resource.QuantityValue
	logLevel       string
	logFormat      string
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	goFlags := flag.NewFlagSet("", flag.ContinueOnError)
	config.RegisterFlags(goFlags)
	fs.AddGoFlagSet(goFlags)
	fs.Lookup("kubeconfig").Usage = "kubeconfig `file` of the cluster; without it $KUBECONFIG, then the pod's own ServiceAccount, " +
		"then ~/.kube/config"

	fs.StringVar(&o.namespace, "namespace", ownNamespace(), "`namespace` of classbind itself, for its Secret and its Leases")
	fs.StringVar(&o.service, "webhook-service", "classbind", "`name` of the Service in front of the webhook server, in --namespace")
	fs.StringVar(&o.webhookURL, "webhook-url", "",
		"`URL` at which the API server reaches a webhook server outside the cluster, such as https://localhost:9443, "+
			"instead of --webhook-service")
	fs.StringVar(&o.webhookAddress, "webhook-bind-address", ":9443", "`host:port` on which the webhook server listens")
	fs.BoolVar(&o.http2, "http2", false,
		"speak HTTP/2, too, on --webhook-bind-address; the API server prefers HTTP/1.1 for all webhooks but those on localhost, "+
			"and so does the webhook server with all who offer both: a connection of HTTP/1.1 has one request at a time, "+
			"one of HTTP/2 eight")
	fs.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "`host:port` of /healthz and /readyz; 0 serves neither")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "`host:port` of /metrics; 0 does not serve it")
	fs.BoolVar(&o.metricsSecure, "metrics-secure", false,
		"serve /metrics over TLS, with the webhook server's certificate, "+
			"and to those alone who present a token with the right to get the path /metrics; without it everybody reads them, over HTTP")
	fs.StringVar(&o.pprofAddress, "pprof-bind-address", "", "`host:port` of /debug/pprof; empty does not serve it")
	fs.BoolVar(&o.contention, "contention-profiling", false,
		"record each wait of a goroutine, for a lock or anything else, for /debug/pprof/mutex and /debug/pprof/block, "+
			"with --pprof-bind-address; it takes time of every request")
	o.addCertificateFlags(fs)
	fs.BoolVar(&o.leaderElect, "leader-elect", true,
		"elect one of several replicas to write the webhook configuration and status; "+
			"every replica answers the API server. Without it this one writes them")
	fs.DurationVar(&o.inFlightWindow, "in-flight-window", time.Minute,
		"`time` after which a default class that was admitted is stored or will never be, until when another has to wait: "+
			"the longest that the API server takes to store it (34s for kube-apiserver), with some to spare")
	fs.IntVar(&o.lateRate, "late-binding-rate", 300,
		"`claims` that are bound in a second at most, and twice as many in a burst, where whenUnmatched is BindLater; "+
			"the leader alone binds them")
	o.lateMemory.Quantity = *resource.NewQuantity(v1alpha1.DefaultLateMemory, resource.BinarySI)
	fs.Var(&o.lateMemory, "late-binding-memory",
		"`bytes`, such as 64Mi, in which each replica holds the selectors of claims that wait, where whenUnmatched is BindLater. "+
			"Each claim kind gets an equal part, and one namespace a quarter of that at most. "+
			"Claims beyond wait without their selectors, and are read again in turns, 20 a second of each kind")
	fs.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", 0,
		"`time` for which requests are still answered after SIGTERM, while /readyz fails, "+
			"so that nobody is left who calls this replica; give it some seconds behind a Service")
	fs.StringVar(&o.logLevel, "log-level", "info", "least `level` of what is logged: debug, info, warn or error")
	fs.StringVar(&o.logFormat, "log-format", "json", "`format` of the log: json, or text, in columns as zap has them for a console")
}

func (o *options) addCertificateFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.certs, "certs", selfSigned,
		"who issues the certificates, `self-signed or cert-manager`: "+
			"classbind itself, from a CA that it keeps in the Secret "+v1alpha1.CASecret+" and makes if there is none, "+
			"or cert-manager, into the Secret "+v1alpha1.TLSSecret+", mounted at --cert-dir")
	fs.StringVar(&o.certDir, "cert-dir", "/etc/classbind/tls", "`folder` of tls.crt and tls.key, with --certs=cert-manager")
	fs.DurationVar(&o.certDuration, "certificate-duration", 7*24*time.Hour,
		"`time` for which a certificate is valid, with --certs=self-signed; "+
			"it is renewed after two thirds of it, and the last third has to do for an API server that does not answer for a while")
	fs.DurationVar(&o.caDuration, "ca-duration", 365*24*time.Hour,
		"`time` for which the CA is valid, with --certs=self-signed; it is renewed after two thirds of it")
	fs.StringVar(&o.clientCAFile, "client-ca-file", "",
		"`file` of the CA, in PEM, that signed the certificates with which API servers call; "+
			"the webhook server then answers nobody else. It is read again when it changes. Needs --client-name")
	fs.StringSliceVar(&o.clientNames, "client-name", nil,
		"`name` that the client's certificate is for, as its common name or a DNS name, with --client-ca-file; "+
			"several with commas, or the flag several times")
}

func ownNamespace() string {
	if b, err := os.ReadFile(podNamespaceFile); err == nil {
		if ns := strings.TrimSpace(string(b)); ns != "" {
			return ns
		}
	}
	return defaultNamespace
}

// validate returns all errors in the flags at once, flag by flag.
func (o *options) validate() error {
	var errs []error
	wrong := func(name, value, text string) {
		errs = append(errs, fmt.Errorf("--%s=%q: %s", name, value, text))
	}
	if e := validation.IsDNS1123Label(o.namespace); len(e) > 0 {
		wrong("namespace", o.namespace, strings.Join(e, "; "))
	}
	if e := validation.IsDNS1035Label(o.service); len(e) > 0 {
		wrong("webhook-service", o.service, strings.Join(e, "; "))
	}
	if _, err := o.webhookHost(); err != nil {
		wrong("webhook-url", o.webhookURL, err.Error())
	}
	o.validateAddresses(wrong)
	if o.inFlightWindow < time.Second || o.inFlightWindow > time.Hour || o.inFlightWindow%time.Second != 0 {
		wrong("in-flight-window", o.inFlightWindow.String(), "must be whole seconds, from 1s to 1h")
	}
	if o.lateRate < 1 || o.lateRate > 100_000 {
		wrong("late-binding-rate", strconv.Itoa(o.lateRate), "must be from 1 to 100000")
	}
	if o.lateMemory.CmpInt64(1<<20) < 0 || o.lateMemory.CmpInt64(1<<40) > 0 {
		wrong("late-binding-memory", o.lateMemory.String(), "must be from 1Mi to 1Ti")
	}
	o.validateCertificates(wrong)
	o.validateClients(wrong)
	if o.shutdownDelay < 0 || o.shutdownDelay > time.Hour {
		wrong("shutdown-delay-duration", o.shutdownDelay.String(), "must be from 0s to 1h")
	}
	if _, err := o.logger(io.Discard); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (o *options) validateAddresses(wrong func(name, value, text string)) {
	if o.metricsSecure && o.metricsAddress == "0" {
		wrong("metrics-secure", "true", "needs --metrics-bind-address, where the metrics are served")
	}
	for _, a := range []struct {
		name, value string
		off         bool
	}{
		{"webhook-bind-address", o.webhookAddress, false},
		{"health-probe-bind-address", o.probeAddress, o.probeAddress == "0"},
		{"metrics-bind-address", o.metricsAddress, o.metricsAddress == "0"},
		{"pprof-bind-address", o.pprofAddress, o.pprofAddress == ""},
	} {
		if a.off {
			continue
		}
		if _, _, err := splitAddress(a.value); err != nil {
			wrong(a.name, a.value, err.Error())
		}
	}
	if o.contention && o.pprofAddress == "" {
		wrong("contention-profiling", "true", "needs --pprof-bind-address, where the profiles are read")
	}
}

func (o *options) validateCertificates(wrong func(name, value, text string)) {
	if o.certs != selfSigned && o.certs != certManager {
		wrong("certs", o.certs, "must be "+selfSigned+" or "+certManager)
	}
	if o.certs == certManager && o.certDir == "" {
		wrong("cert-dir", o.certDir, "must name the folder of tls.crt and tls.key")
	}
	// The last third of it must be long enough for the API servers to trust the next one.
	if o.certDuration < 30*time.Second {
		wrong("certificate-duration", o.certDuration.String(), "must be at least 30s")
	}
	if o.caDuration/2 < o.certDuration { // Twice the longest duration would overflow.
		wrong("ca-duration", o.caDuration.String(),
			fmt.Sprintf("must be at least twice --certificate-duration, which is %s", o.certDuration))
	}
}

// validateClients requires a name with a CA. The CA alone would let in every client
// that it ever signed a certificate for, such as every kubelet with a cluster's CA.
func (o *options) validateClients(wrong func(name, value, text string)) {
	if o.clientCAFile != "" && len(o.clientNames) == 0 {
		wrong("client-ca-file", o.clientCAFile,
			"needs --client-name, the name that the API servers' certificate is for: else every client of the CA could call")
	}
	if o.clientCAFile == "" && len(o.clientNames) > 0 {
		wrong("client-name", strings.Join(o.clientNames, ","), "needs --client-ca-file, the CA that signed the certificate")
	}
	if slices.Contains(o.clientNames, "") {
		wrong("client-name", strings.Join(o.clientNames, ","), "must not have an empty name")
	}
}

// webhookHost returns the host of --webhook-url, empty without that flag.
func (o *options) webhookHost() (string, error) {
	if o.webhookURL == "" {
		return "", nil
	}
	u, err := url.Parse(o.webhookURL)
	switch {
	case err != nil:
		return "", fmt.Errorf("must be a URL: %w", err)
	case u.Scheme != "https":
		return "", errors.New("must begin with https://: the API server calls nothing else")
	case u.User != nil || strings.ContainsAny(o.webhookURL, "?#"):
		return "", errors.New("must have no user, query or fragment")
	case net.ParseIP(u.Hostname()) != nil:
		return "", errors.New("must name a host, such as localhost: certificates are issued for names, not for addresses")
	}
	if e := validation.IsDNS1123Subdomain(u.Hostname()); len(e) > 0 {
		return "", fmt.Errorf("must name a host: %s", strings.Join(e, "; "))
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if _, err := parsePort(port); err != nil {
			return "", err
		}
	}
	return u.Hostname(), nil
}

// certificateNames returns the names that the API server calls the webhook server by.
func (o *options) certificateNames() []string {
	if host, _ := o.webhookHost(); host != "" {
		return []string{host}
	}
	return []string{
		fmt.Sprintf("%s.%s.svc", o.service, o.namespace),
		fmt.Sprintf("%s.%s.svc.cluster.local", o.service, o.namespace),
	}
}

// caSecret returns the name of the Secret with the CA. A change of it brings a new CA.
func (o *options) caSecret() string {
	if o.certs == certManager {
		return v1alpha1.TLSSecret
	}
	return v1alpha1.CASecret
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, errors.New("must be host:port, or :port for all addresses")
	}
	port, err = parsePort(text)
	return host, port, err
}

func parsePort(text string) (int, error) {
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("port %q must be a number from 1 to 65535", text)
	}
	return port, nil
}

// logLevels are the values of --log-level.
var logLevels = map[string]zapcore.Level{
	"debug": zap.DebugLevel, "info": zap.InfoLevel, "warn": zap.WarnLevel, "error": zap.ErrorLevel,
}

// logEncoders are the values of --log-format.
var logEncoders = map[string]func(zapcore.EncoderConfig) zapcore.Encoder{
	"json": zapcore.NewJSONEncoder, "text": zapcore.NewConsoleEncoder,
}

func (o *options) logger(to io.Writer) (logr.Logger, error) {
	var errs []error
	// logr's V(1) is zap's debug level. It shows our own details, but not those of
	// every request, which client-go logs at higher numbers.
	level, ok := logLevels[o.logLevel]
	if !ok {
		errs = append(errs, fmt.Errorf("--log-level=%q: must be debug, info, warn or error", o.logLevel))
	}
	newEncoder, ok := logEncoders[o.logFormat]
	if !ok {
		errs = append(errs, fmt.Errorf("--log-format=%q: must be json or text", o.logFormat))
	}
	if len(errs) > 0 {
		return logr.Discard(), errors.Join(errs...)
	}
	encoder := newEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", NameKey: "logger", MessageKey: "msg",
		EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeLevel: zapcore.CapitalLevelEncoder, EncodeDuration: zapcore.StringDurationEncoder,
	})
	return zapr.NewLoggerWithOptions(zap.New(zapcore.NewCore(encoder, zapcore.AddSync(to), level)), zapr.ErrorKey("err")), nil
}

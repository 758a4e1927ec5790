package serve

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/classbind/classbind/api/v1beta1"
)

const (
	defaultNamespace = "classbind-system"
	podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

	selfSigned  = "self-signed"
	certManager = "cert-manager"
)

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
	logLevel       string
	logFormat      string
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	goFlags := flag.NewFlagSet("", flag.ContinueOnError)
	config.RegisterFlags(goFlags)
	fs.AddGoFlagSet(goFlags)
	fs.Lookup("kubeconfig").Usage = "kubeconfig `file` of the cluster; without it $KUBECONFIG, then the pod's own ServiceAccount, " +
		"then ~/.kube/config"

	own := defaultNamespace
	if b, err := os.ReadFile(podNamespaceFile); err == nil {
		own = cmp.Or(strings.TrimSpace(string(b)), own)
	}
	fs.StringVar(&o.namespace, "classbind-namespace", own, "`namespace` of classbind itself, for its Secret and its Leases")
	fs.StringVar(&o.service, "webhook-service", "classbind",
		"`name` of the Service in front of the webhook server, in --classbind-namespace")
	fs.StringVar(&o.webhookURL, "webhook-url", "",
		"`URL` at which the API server reaches a webhook server outside the cluster, such as https://localhost:9443, "+
			"instead of --webhook-service")
	fs.StringVar(&o.webhookAddress, "webhook-bind-address", ":9443", "`host:port` on which the webhook server listens")
	fs.BoolVar(&o.http2, "http2", false,
		"also speak HTTP/2 on --webhook-bind-address, with eight concurrent requests per connection. "+
			"Clients that offer both get HTTP/1.1, which the API server prefers for all webhooks except those on localhost")
	fs.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "`host:port` of /healthz and /readyz; 0 serves neither")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "`host:port` of /metrics; 0 does not serve it")
	fs.BoolVar(&o.metricsSecure, "metrics-secure", false,
		"serve /metrics over TLS, with the webhook server's certificate, to clients whose token has the right to get the path /metrics. "+
			"Without it, /metrics is served over HTTP to everyone")
	fs.StringVar(&o.pprofAddress, "pprof-bind-address", "", "`host:port` of /debug/pprof; empty does not serve it")
	fs.StringVar(&o.certs, "certs", selfSigned,
		"`issuer` of the certificates. self-signed: classbind itself, from a CA in the Secret "+v1beta1.CASecret+
			", which it creates if necessary. cert-manager: cert-manager, in the Secret "+v1beta1.TLSSecret+", mounted at --cert-dir")
	fs.StringVar(&o.certDir, "cert-dir", "/etc/classbind/tls", "`folder` of tls.crt and tls.key, with --certs=cert-manager")
	fs.DurationVar(&o.certDuration, "certificate-duration", 7*24*time.Hour,
		"`time` for which a certificate is valid, with --certs=self-signed. It is renewed after two thirds of that. "+
			"The last third is a margin, in case the API server does not answer")
	fs.DurationVar(&o.caDuration, "ca-duration", 365*24*time.Hour,
		"`time` for which the CA is valid, with --certs=self-signed. It is renewed after two thirds of that")
	fs.StringVar(&o.clientCAFile, "client-ca-file", "",
		"`file` of the CA, in PEM, of the API servers' client certificates. The webhook server then answers no other clients. "+
			"It reads the file again when it changes. Needs --client-name")
	fs.StringSliceVar(&o.clientNames, "client-name", nil,
		"`name` of the client's certificate, its common name or a DNS name, with --client-ca-file. "+
			"Separate several by commas, or repeat the flag")
	fs.BoolVar(&o.leaderElect, "leader-elect", true,
		"elect one of several replicas to write the webhook configuration and status; "+
			"every replica answers the API server. Without it, this replica writes them")
	fs.DurationVar(&o.inFlightWindow, "in-flight-window", time.Minute,
		"`time` that the API server may take to store what classbind admitted. Another default class waits until then. "+
			"kube-apiserver takes at most 34s; add a margin")
	fs.IntVar(&o.lateRate, "late-binding-rate", 300,
		"most `claims` that the leader binds per second, where whenUnmatched is BindLater. A burst has at most twice that number")
	fs.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", 0,
		"`time` for which the replica answers after SIGTERM, while /readyz fails. "+
			"Behind a Service, set some seconds, until no API server calls this replica")
	fs.StringVar(&o.logLevel, "log-level", "info", "lowest `level` that is logged: debug, info, warn or error")
	fs.StringVar(&o.logFormat, "log-format", "json", "`format` of the log: json, or text for people")
}

// validate returns all errors in the flags at once, flag by flag.
func (o *options) validate() error {
	var errs []error
	check := func(valid bool, name string, value any, text string) {
		if !valid {
			errs = append(errs, fmt.Errorf("--%s=%q: %s", name, fmt.Sprint(value), text))
		}
	}
	invalid := validation.IsDNS1123Label(o.namespace)
	check(len(invalid) == 0, "classbind-namespace", o.namespace, strings.Join(invalid, "; "))
	invalid = validation.IsDNS1035Label(o.service)
	check(len(invalid) == 0, "webhook-service", o.service, strings.Join(invalid, "; "))
	if _, err := o.webhookHost(); err != nil {
		check(false, "webhook-url", o.webhookURL, err.Error())
	}
	check(!o.metricsSecure || o.metricsAddress != "0", "metrics-secure", true, "needs --metrics-bind-address, where the metrics are served")
	for _, a := range []struct {
		name, value string
		off         bool
	}{
		{"webhook-bind-address", o.webhookAddress, false},
		{"health-probe-bind-address", o.probeAddress, o.probeAddress == "0"},
		{"metrics-bind-address", o.metricsAddress, o.metricsAddress == "0"},
		{"pprof-bind-address", o.pprofAddress, o.pprofAddress == ""},
	} {
		if err := checkAddress(a.value); err != nil {
			check(a.off, a.name, a.value, err.Error())
		}
	}
	check(o.inFlightWindow >= time.Second && o.inFlightWindow <= time.Hour && o.inFlightWindow%time.Second == 0,
		"in-flight-window", o.inFlightWindow, "must be whole seconds, from 1s to 1h")
	check(o.lateRate >= 1 && o.lateRate <= 100_000, "late-binding-rate", o.lateRate, "must be from 1 to 100000")
	check(o.certs == selfSigned || o.certs == certManager, "certs", o.certs, "must be "+selfSigned+" or "+certManager)
	check(o.certs != certManager || o.certDir != "", "cert-dir", o.certDir, "must name the folder of tls.crt and tls.key")
	// The last third of it must be long enough for the API servers to trust the next one.
	check(o.certDuration >= 30*time.Second, "certificate-duration", o.certDuration, "must be at least 30s")
	check(o.caDuration/2 >= o.certDuration, "ca-duration", o.caDuration, // Twice the longest duration would overflow.
		fmt.Sprintf("must be at least twice --certificate-duration, which is %s", o.certDuration))
	// The CA alone would let in every client that it ever signed a certificate for, such as every kubelet with a cluster's CA.
	names := strings.Join(o.clientNames, ",")
	check(o.clientCAFile == "" || len(o.clientNames) > 0, "client-ca-file", o.clientCAFile,
		"needs --client-name, the name that the API servers' certificate is for: else every client of the CA could call")
	check(o.clientCAFile != "" || len(o.clientNames) == 0, "client-name", names,
		"needs --client-ca-file, the CA that signed the certificate")
	check(!slices.Contains(o.clientNames, ""), "client-name", names, "must not have an empty name")
	check(o.shutdownDelay >= 0 && o.shutdownDelay <= time.Hour, "shutdown-delay-duration", o.shutdownDelay, "must be from 0s to 1h")
	_, known := logLevels[o.logLevel]
	check(known, "log-level", o.logLevel, "must be debug, info, warn or error")
	check(logEncoders[o.logFormat] != nil, "log-format", o.logFormat, "must be json or text")
	return errors.Join(errs...)
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
		if err := checkPort(port); err != nil {
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
	return []string{fmt.Sprintf("%s.%s.svc", o.service, o.namespace), fmt.Sprintf("%s.%s.svc.cluster.local", o.service, o.namespace)}
}

// caSecret returns the name of the Secret with the CA. A change of it brings a new CA.
func (o *options) caSecret() string {
	if o.certs == certManager {
		return v1beta1.TLSSecret
	}
	return v1beta1.CASecret
}

func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("must be host:port, or :port for all addresses")
	}
	return checkPort(port)
}

func checkPort(text string) error {
	if port, err := strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
		return fmt.Errorf("port %q must be a number from 1 to 65535", text)
	}
	return nil
}

// logLevels are the values of --log-level. logr's V(1) is zap's debug level. It shows our own details, but not those
// of every request, which client-go logs at higher numbers.
var logLevels = map[string]zapcore.Level{"debug": zap.DebugLevel, "info": zap.InfoLevel, "warn": zap.WarnLevel, "error": zap.ErrorLevel}

var logEncoders = map[string]func(zapcore.EncoderConfig) zapcore.Encoder{"json": zapcore.NewJSONEncoder, "text": zapcore.NewConsoleEncoder}

func (o *options) logger(to io.Writer) logr.Logger {
	encoder := logEncoders[o.logFormat](zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", NameKey: "logger", MessageKey: "msg",
		EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeLevel: zapcore.CapitalLevelEncoder, EncodeDuration: zapcore.StringDurationEncoder,
	})
	return zapr.NewLoggerWithOptions(zap.New(zapcore.NewCore(encoder, zapcore.AddSync(to), logLevels[o.logLevel])), zapr.ErrorKey("err"))
}

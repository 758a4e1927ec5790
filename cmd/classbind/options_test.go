package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, args ...string) *options {
	t.Helper()
	o := &options{}
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.addFlags(fs)
	require.NoError(t, fs.Parse(args))
	return o
}

func TestValidateRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		arg    string
		want   string
	}{
		"Namespace": {
			reason: "We should refuse what cannot be a namespace.",
			arg:    "--namespace=Class_Bind", want: "lower case",
		},
		"NoNamespace": {
			reason: "We should refuse an empty namespace.",
			arg:    "--namespace=", want: "lower case",
		},
		"Service": {
			reason: "We should refuse what cannot be a Service.",
			arg:    "--webhook-service=class.bind", want: "lower case",
		},
		"NoService": {
			reason: "We should refuse an empty Service.",
			arg:    "--webhook-service=", want: "lower case",
		},
		"HTTP": {
			reason: "We should refuse a URL that the API server does not call.",
			arg:    "--webhook-url=http://localhost:9443", want: "must begin with https://: the API server calls nothing else",
		},
		"NoScheme": {
			reason: "We should refuse a URL without a scheme.",
			arg:    "--webhook-url=localhost:9443", want: "must begin with https://: the API server calls nothing else",
		},
		"IPv4": {
			reason: "We should refuse an address, for which there is no certificate.",
			arg:    "--webhook-url=https://127.0.0.1:9443", want: "must name a host, such as localhost: certificates are issued for names, not for addresses",
		},
		"IPv6": {
			reason: "We should refuse an address, for which there is no certificate.",
			arg:    "--webhook-url=https://[::1]:9443", want: "must name a host, such as localhost: certificates are issued for names, not for addresses",
		},
		"Query": {
			reason: "We should refuse a query, which the API server refuses.",
			arg:    "--webhook-url=https://localhost/?a=b", want: "must have no user, query or fragment",
		},
		"EmptyQuery": {
			reason: "We should refuse an empty query: the path that is put after it would become the query.",
			arg:    "--webhook-url=https://localhost?", want: "must have no user, query or fragment",
		},
		"Fragment": {
			reason: "We should refuse a fragment, which the API server refuses.",
			arg:    "--webhook-url=https://localhost/#a", want: "must have no user, query or fragment",
		},
		"EmptyFragment": {
			reason: "We should refuse an empty fragment: the path that is put after it would become the fragment.",
			arg:    "--webhook-url=https://localhost#", want: "must have no user, query or fragment",
		},
		"UserInfo": {
			reason: "We should refuse a user, which the API server refuses.",
			arg:    "--webhook-url=https://me@localhost", want: "must have no user, query or fragment",
		},
		"NoHost": {
			reason: "We should refuse a URL that names no host.",
			arg:    "--webhook-url=https://", want: "must name a host: ",
		},
		"Opaque": {
			reason: "We should refuse a URL whose slashes were forgotten.",
			arg:    "--webhook-url=https:localhost:9443", want: "must name a host: ",
		},
		"WrongHost": {
			reason: "We should refuse a host that no certificate can name.",
			arg:    "--webhook-url=https://local_host", want: "must name a host: ",
		},
		"Garbage": {
			reason: "We should say what is wrong with what is no URL.",
			arg:    "--webhook-url=https://[", want: "must be a URL: ",
		},
		"WrongPortOfTheURL": {
			reason: "We should refuse a port that there is not.",
			arg:    "--webhook-url=https://localhost:94430", want: "port",
		},
		"WebhookAddress": {
			reason: "We should refuse an address without a port.",
			arg:    "--webhook-bind-address=localhost", want: "must be host:port, or :port for all addresses",
		},
		"WebhookAddressOff": {
			reason: "We should refuse to serve no webhook.",
			arg:    "--webhook-bind-address=0", want: "must be host:port, or :port for all addresses",
		},
		"WebhookPortZero": {
			reason: "We should refuse a random port, which nobody could call.",
			arg:    "--webhook-bind-address=:0", want: `port "0" must be a number from 1 to 65535`,
		},
		"ProbeAddress": {
			reason: "We should refuse a port that there is not.",
			arg:    "--health-probe-bind-address=:65536", want: `port "65536" must be a number from 1 to 65535`,
		},
		"MetricsAddress": {
			reason: "We should refuse the name of a port.",
			arg:    "--metrics-bind-address=:http", want: `port "http" must be a number from 1 to 65535`,
		},
		"NoMetricsAddress": {
			reason: "We should refuse an empty address, which controller-runtime takes for its own default.",
			arg:    "--metrics-bind-address=", want: "must be host:port, or :port for all addresses",
		},
		"PprofAddress": {
			reason: "We should refuse an address without a port.",
			arg:    "--pprof-bind-address=localhost", want: "must be host:port, or :port for all addresses",
		},
		"NoWindow": {
			reason: "We should refuse to take what is admitted for stored or lost at once.",
			arg:    "--in-flight-window=0s", want: "must be whole seconds, from 1s to 1h",
		},
		"NegativeWindow": {
			reason: "We should refuse a window that is over before it begins.",
			arg:    "--in-flight-window=-1s", want: "must be whole seconds, from 1s to 1h",
		},
		"ShortWindow": {
			reason: "We should refuse less than a Lease can say.",
			arg:    "--in-flight-window=500ms", want: "must be whole seconds, from 1s to 1h",
		},
		"FractionOfAWindow": {
			reason: "We should refuse what a Lease, which has whole seconds, would cut short.",
			arg:    "--in-flight-window=1.5s", want: "must be whole seconds, from 1s to 1h",
		},
		"LogLevel": {
			reason: "We should say which levels there are.",
			arg:    "--log-level=verbose", want: "must be debug, info, warn or error",
		},
		"LogFormat": {
			reason: "We should say which formats there are.",
			arg:    "--log-format=xml", want: "must be json or text",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := parse(t, tc.arg).validate()
			require.Error(t, err, tc.reason)
			flag, value, _ := strings.Cut(tc.arg, "=")
			assert.True(t, strings.HasPrefix(err.Error(), flag+`="`+value+`": `), "We should name the flag and its value. Got: %s", err)
			assert.Contains(t, err.Error(), tc.want, tc.reason)
			assert.NotContains(t, err.Error(), "\n", "We should complain of nothing else.")
		})
	}
}

func TestValidateSaysEverythingAtOnce(t *testing.T) {
	err := parse(t, "--namespace=A", "--webhook-service=B", "--webhook-url=http://c", "--webhook-bind-address=d",
		"--health-probe-bind-address=e", "--metrics-bind-address=f", "--pprof-bind-address=g", "--in-flight-window=1ms", "--log-level=h", "--log-format=i").validate()
	require.Error(t, err)
	var flags []string
	for line := range strings.Lines(err.Error()) {
		flag, _, _ := strings.Cut(line, "=")
		flags = append(flags, flag)
	}
	assert.Equal(t, []string{
		"--namespace", "--webhook-service", "--webhook-url", "--webhook-bind-address",
		"--health-probe-bind-address", "--metrics-bind-address", "--pprof-bind-address", "--in-flight-window", "--log-level", "--log-format",
	}, flags, "We should name every wrong flag at once, so that nobody has to try ten times.")
}

func TestValidateAccepts(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   []string
	}{
		"Defaults": {reason: "We should start without any flag."},
		"URL":      {reason: "We should take a URL without a port.", args: []string{"--webhook-url=https://classbind.example.org"}},
		"URLPort":  {reason: "We should take a URL with a port and a slash.", args: []string{"--webhook-url=https://localhost:9443/"}},
		"URLPath":  {reason: "We should take a URL with a path: a proxy may stand there.", args: []string{"--webhook-url=https://proxy/classbind"}},
		"Off":      {reason: "We should let an admin turn off what is not needed.", args: []string{"--health-probe-bind-address=0", "--metrics-bind-address=0", "--pprof-bind-address="}},
		"Addresses": {
			reason: "We should take hosts, IPv4 and IPv6 addresses.",
			args:   []string{"--webhook-bind-address=[::1]:9443", "--health-probe-bind-address=localhost:8081", "--metrics-bind-address=127.0.0.1:8080", "--pprof-bind-address=:6060"},
		},
		"Window": {reason: "We should take the least window.", args: []string{"--in-flight-window=1s"}},
		"Long":   {reason: "We should take a window in minutes, for an API server that takes longer requests.", args: []string{"--in-flight-window=10m30s"}},
		"Millis": {reason: "We should take whole seconds however they are written.", args: []string{"--in-flight-window=90000ms"}},
		"Debug":  {reason: "We should take the level debug.", args: []string{"--log-level=debug", "--log-format=text"}},
		"Warn":   {reason: "We should take the level warn.", args: []string{"--log-level=warn"}},
		"Error":  {reason: "We should take the level error.", args: []string{"--log-level=error"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.NoError(t, parse(t, tc.args...).validate(), tc.reason)
		})
	}
}

func TestInFlightWindow(t *testing.T) {
	assert.Equal(t, 90*time.Second, parse(t).inFlightWindow, "We should allow for the API server's longest request, 60 s, and 30 s between clocks.")
	err := newServeCommand().ParseFlags([]string{"--in-flight-window=soon"})
	assert.ErrorContains(t, err, `invalid argument "soon" for "--in-flight-window" flag`, "We should refuse what is no time.")
}

func TestCertificateNames(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"Service": {
			reason: "We should have a certificate for the name by which the API server calls a Service, and for its full name.",
			args:   []string{"--namespace=ns", "--webhook-service=svc"},
			want:   []string{"svc.ns.svc", "svc.ns.svc.cluster.local"},
		},
		"URL": {
			reason: "We should have a certificate for the host of the URL alone.",
			args:   []string{"--webhook-url=https://localhost:9443/"},
			want:   []string{"localhost"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, parse(t, tc.args...).certificateNames(), tc.reason)
		})
	}
}

func TestLogger(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"JSON":  {reason: "We should log JSON, and leave out what is below the level.", want: `"level":"INFO","msg":"hello","claim":"db"}`},
		"Text":  {reason: "We should log text.", args: []string{"--log-format=text"}, want: `level=INFO msg=hello claim=db`},
		"Debug": {reason: "We should log V(1) at the level debug.", args: []string{"--log-level=debug", "--log-format=text"}, want: `msg=detail`},
		"Warn":  {reason: "We should log no Info at the level warn.", args: []string{"--log-level=warn"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			log, err := parse(t, tc.args...).logger(&out)
			require.NoError(t, err, tc.reason)
			log.Info("hello", "claim", "db")
			log.V(1).Info("detail")
			if tc.want == "" {
				assert.Empty(t, out.String(), tc.reason)
				return
			}
			assert.Contains(t, out.String(), tc.want, tc.reason)
			assert.Equal(t, name == "Debug", strings.Contains(out.String(), "detail"), tc.reason)
		})
	}
}

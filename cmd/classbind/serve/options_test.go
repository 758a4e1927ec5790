package serve

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/certs"
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
		with   []string // other, valid flags
		arg    string
		want   string
	}{
		"Namespace": {reason: "We should refuse what cannot be a namespace.", arg: "--classbind-namespace=Class_Bind", want: "lower case"},
		"Service":   {reason: "We should refuse what cannot be a Service.", arg: "--webhook-service=class.bind", want: "lower case"},
		"HTTP": {
			reason: "We should refuse a URL that the API server does not call.",
			arg:    "--webhook-url=http://localhost:9443",
			want:   "must begin with https://: the API server calls nothing else",
		},
		"IPv4": {
			reason: "We should refuse an address, for which there is no certificate.",
			arg:    "--webhook-url=https://127.0.0.1:9443",
			want:   "must name a host, such as localhost: certificates are issued for names, not for addresses",
		},
		"EmptyQuery": {
			reason: "We should refuse an empty query: the path after it would become the query.",
			arg:    "--webhook-url=https://localhost?",
			want:   "must have no user, query or fragment",
		},
		"NoHost":    {reason: "We should refuse a URL that names no host.", arg: "--webhook-url=https://", want: "must name a host: "},
		"WrongHost": {reason: "We should refuse what no certificate can name.", arg: "--webhook-url=https://local_host", want: "must name a host: "},
		"Garbage":   {reason: "We should say why a text is not a URL.", arg: "--webhook-url=https://[", want: "must be a URL: "},
		"NoRate": {
			reason: "We should refuse a rate of 0: ClaimKinds report whether claims are bound later.",
			arg:    "--late-binding-rate=0",
			want:   "must be from 1 to 100000",
		},
		"NoWindow": {
			reason: "We should refuse a window of 0, which would free a Lease while a write is in flight.",
			arg:    "--in-flight-window=0s",
			want:   "must be whole seconds, from 1s to 1h",
		},
		"FractionOfAWindow": {
			reason: "We should refuse fractions of a second, which a Lease would drop.",
			arg:    "--in-flight-window=1.5s",
			want:   "must be whole seconds, from 1s to 1h",
		},
		"Certs": {reason: "We should say who can issue certificates.", arg: "--certs=cert_manager", want: "must be self-signed or cert-manager"},
		"NoCertDir": {
			reason: "We should refuse to look for certificates in the working directory.",
			with:   []string{"--certs=cert-manager"},
			arg:    "--cert-dir=",
			want:   "must name the folder of tls.crt and tls.key",
		},
		"NoCertificateDuration": {reason: "We should refuse certificates that nobody trusts.", arg: "--certificate-duration=0s", want: "must be at least 30s"},
		"ShortCADuration": {
			reason: "We should refuse a CA that is renewed before the certificates that it has signed.",
			arg:    "--ca-duration=335h59m59s",
			want:   "must be at least twice --certificate-duration, which is 168h0m0s",
		},
		"CADurationOfTheLongestCertificates": {
			reason: "We should not be misled by a duration whose double is out of bounds.",
			with:   []string{"--certificate-duration=2562047h47m16s"},
			arg:    "--ca-duration=8760h0m0s", want: "must be at least twice --certificate-duration, which is 2562047h47m16s",
		},
		"ClientCAWithoutAName": {
			reason: "We should not answer every client that a CA ever signed a certificate for.",
			arg:    "--client-ca-file=ca.crt",
			want:   "needs --client-name",
		},
		"ClientNameWithoutACA": {
			reason: "We should refuse a name alone, which would keep nobody out.",
			arg:    "--client-name=kube-apiserver,other",
			want:   "needs --client-ca-file",
		},
		"EmptyClientName": {
			reason: "We should refuse an empty name.",
			with:   []string{"--client-ca-file=ca.crt"},
			arg:    "--client-name=kube-apiserver,",
			want:   "must not have an empty name",
		},
		"MetricsSecureWithoutMetrics": {
			reason: "We should refuse to secure metrics that are not served.",
			with:   []string{"--metrics-bind-address=0"},
			arg:    "--metrics-secure=true",
			want:   "needs --metrics-bind-address",
		},
		"NegativeShutdownDelay": {reason: "We should not end too early.", arg: "--shutdown-delay-duration=-1s", want: "must be from 0s to 1h"},
		"LogLevel":              {reason: "We should say which levels there are.", arg: "--log-level=verbose", want: "must be debug, info, warn or error"},
		"LogFormat":             {reason: "We should say which formats there are.", arg: "--log-format=xml", want: "must be json or text"},
	} {
		t.Run(name, func(t *testing.T) {
			err := parse(t, append(tc.with, tc.arg)...).validate()
			require.Error(t, err, tc.reason)
			flag, value, _ := strings.Cut(tc.arg, "=")
			assert.True(t, strings.HasPrefix(err.Error(), flag+`="`+value+`": `), "We should name the flag and its value. Got: %s", err)
			assert.Contains(t, err.Error(), tc.want, tc.reason)
			assert.NotContains(t, err.Error(), "\n", "We should complain of nothing else.")
		})
	}
}

func TestValidateSaysEverythingAtOnce(t *testing.T) {
	err := parse(t, "--classbind-namespace=A", "--webhook-service=B", "--webhook-url=http://c", "--in-flight-window=1ms",
		"--late-binding-rate=-1", "--certs=j", "--certificate-duration=1s", "--ca-duration=1s", "--client-ca-file=k",
		"--shutdown-delay-duration=-1s", "--log-level=h", "--log-format=i").validate()
	require.Error(t, err)
	var flags []string
	for line := range strings.Lines(err.Error()) {
		flag, _, _ := strings.Cut(line, "=")
		flags = append(flags, flag)
	}
	assert.Equal(t, []string{
		"--classbind-namespace", "--webhook-service", "--webhook-url", "--in-flight-window", "--late-binding-rate",
		"--certs", "--certificate-duration", "--ca-duration", "--client-ca-file", "--shutdown-delay-duration", "--log-level", "--log-format",
	}, flags, "We should name every wrong flag at once, so that nobody has to try a dozen times.")
}

func TestValidateAccepts(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   []string
	}{
		"Defaults":    {reason: "We should start without any flag."},
		"URLPort":     {reason: "We should take a URL with a port and a slash.", args: []string{"--webhook-url=https://localhost:9443/"}},
		"URLPath":     {reason: "We should take a URL with a path: a proxy may stand there.", args: []string{"--webhook-url=https://proxy/classbind"}},
		"Window":      {reason: "We should take the least window.", args: []string{"--in-flight-window=1s"}},
		"CertManager": {reason: "We should take them from the folder of the flag.", args: []string{"--certs=cert-manager", "--cert-dir=tls"}},
		"Briefest":    {reason: "We should take the shortest durations.", args: []string{"--certificate-duration=30s", "--ca-duration=1m"}},
		"Clients": {
			reason: "We should take a CA with several names, in either form.",
			args:   []string{"--client-ca-file=ca.crt", "--client-name=one,two", "--client-name=three"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.NoError(t, parse(t, tc.args...).validate(), tc.reason)
		})
	}
}

func TestCertificates(t *testing.T) {
	o := parse(t, "--classbind-namespace=ns", "--webhook-service=svc", "--certificate-duration=1h", "--ca-duration=3h", "--cert-dir="+t.TempDir())
	assert.Equal(t, "classbind-ca", o.caSecret(), "We should watch the Secret in which we keep the CA.")
	source, err := o.certificates(&rest.Config{})
	require.NoError(t, err)
	ours := source.(certs.SelfSigned)
	assert.Equal(t, o.certificateNames(), ours.DNSNames, "We should issue certificates for all names.")
	issuer := ours.Authority.(certs.Backdating)
	assert.Equal(t, "ns", issuer.SecretNamespace, "We should keep the CA in our own namespace.")
	assert.Equal(t, time.Hour, issuer.LeafDuration, "We should issue certificates for as long as we were told.")
	assert.Equal(t, 3*time.Hour, issuer.CADuration, "We should have a CA for as long as we were told.")

	o.certs = certManager
	assert.Equal(t, "classbind-tls", o.caSecret(), "We should watch the Secret into which cert-manager issues.")
	_, err = o.certificates(&rest.Config{})
	assert.ErrorContains(t, err, o.certDir, "We should read the certificates of cert-manager where we were told.")
}

func TestCertificateNames(t *testing.T) {
	assert.Equal(t, []string{"svc.ns.svc", "svc.ns.svc.cluster.local"}, parse(t, "--classbind-namespace=ns", "--webhook-service=svc").certificateNames(),
		"We should have a certificate for the name by which the API server calls a Service, and for its full name.")
	assert.Equal(t, []string{"localhost"}, parse(t, "--webhook-url=https://localhost:9443/").certificateNames(),
		"We should have a certificate for the host of the URL alone.")
}

func TestLogger(t *testing.T) {
	stamp := `"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[-+]\d\d:\d\d)"`
	const hello = "\tINFO\thello\t" + `{"claim": "db"}` + "\n"
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   string // a regular expression of all of it
	}{
		"JSON": {
			reason: "We should log JSON, and leave out what is below the level.",
			want: `{"level":"INFO","time":` + stamp + `,"msg":"hello","claim":"db"}` + "\n" + `{"level":"ERROR","time":` + stamp +
				`,"logger":"client-go","msg":"failed","err":"refused"}` + "\n",
		},
		"Text": {
			reason: "We should log text.",
			args:   []string{"--log-format=text"},
			want:   `\S+` + hello + `\S+` + "\tERROR\tclient-go\tfailed\t" + `{"err": "refused"}` + "\n",
		},
		"Debug": {
			reason: "We should log V(1) at the level debug, and no more.",
			args:   []string{"--log-level=debug", "--log-format=text"},
			want:   `\S+` + hello + `\S+` + "\tDEBUG\tdetail\n" + `\S+` + "\tERROR\t.*\n",
		},
		"Error": {reason: "We should log errors at any level.", args: []string{"--log-level=error"}, want: `.*"msg":"failed".*` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			log := parse(t, tc.args...).logger(&out)
			log.Info("hello", "claim", "db")
			log.V(1).Info("detail")
			log.V(2).Info("every request")
			log.WithName("client-go").Error(errors.New("refused"), "failed")
			assert.Regexp(t, "^"+tc.want+"$", out.String(), tc.reason)
		})
	}
}

package v1beta1

import (
	"net"
	"strconv"
	"time"
)

// DefaultChooserTimeout is how long a claim waits for a chooser whose ClaimKind sets no timeout.
const DefaultChooserTimeout = 200 * time.Millisecond

// External is a chooser: a program that ranks candidates, which classbind calls over gRPC. api/chooser/v1 has the protocol.
//
// +kubebuilder:validation:XValidation:rule="has(self.service) != has(self.host)",message="name either the service or the host of the chooser",fieldPath=".service"
type External struct {
	// Service is the Service of the chooser in this cluster. Its name is that of its certificate, too:
	// NAME.NAMESPACE.svc. Claims in its namespace never ask the chooser: they get a class by weight,
	// whatever whenUnavailable says, without a warning. Example: {namespace: prices, name: chooser, port: 8443}
	// +optional
	Service *ChooserService `json:"service,omitempty"`

	// Host is the address of a chooser elsewhere, HOST:PORT. Its certificate must have this host.
	// Example: chooser.example.org:8443
	// +kubebuilder:validation:MaxLength=259
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*|\[[0-9a-f:]+\]):[1-9][0-9]{0,4}$`
	// +optional
	Host string `json:"host,omitempty"`

	// CABundle are the certificates of the CAs that may sign the chooser's certificate, in PEM. Without
	// them, these are the system's CAs. The image has none: mount a folder, and name it in SSL_CERT_DIR.
	// Example: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`

	// ClientCertificate is how classbind proves to the chooser who it is.
	// Example: {secretName: classbind-chooser}
	// +kubebuilder:default={}
	// +optional
	ClientCertificate ChooserClientCertificate `json:"clientCertificate,omitzero"`

	// Timeout is how long a claim waits for the answer, from 10ms to 999ms, or 1s. Example: 500ms
	// +kubebuilder:default="200ms"
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]{1,2}ms|1s)$`
	// +optional
	Timeout string `json:"timeout,omitempty"`

	// WhenUnavailable says what a claim gets if the chooser does not answer, or if its answer is
	// invalid. With Draw, it gets a class by weight, as with WeightedRandom, and a warning says so.
	// With Fail, classbind answers 503, and admission.failurePolicy decides; or 429, if the chooser
	// answers all but this namespace. Example: Fail
	// +kubebuilder:default=Draw
	// +optional
	WhenUnavailable WhenUnavailable `json:"whenUnavailable,omitempty"`

	// Fields are what the chooser learns about a claim and its candidates. As JSON, those of a claim may
	// have 64 KiB together. A class with more than 1925 bytes is left out: it follows those of an order.
	// Example: {claim: [{path: .spec.nodes}], class: [{path: .metadata.name}, {path: .spec.pricePerHour}]}
	// +required
	Fields ChooserFields `json:"fields,omitzero"`
}

// Address returns the address of the chooser, HOST:PORT.
func (e *External) Address() string {
	if e.Service != nil {
		return net.JoinHostPort(e.Service.Name+"."+string(e.Service.Namespace)+".svc", strconv.Itoa(int(e.Service.Port)))
	}
	return e.Host
}

// Wait returns how long a claim waits for an answer. An invalid timeout, which another release accepted, counts as the default.
func (e *External) Wait() time.Duration {
	if d, err := time.ParseDuration(e.Timeout); err == nil && d > 0 && d <= MaxChooserTimeout {
		return d
	}
	return DefaultChooserTimeout
}

// ChooserService is the Service of a chooser.
type ChooserService struct {
	// Namespace of the Service. Example: prices
	// +required
	Namespace NamespaceName `json:"namespace"`

	// Name of the Service. Example: chooser
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name"`

	// Port of the Service. Example: 8443
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`
}

// ChooserClientCertificate is how classbind proves to a chooser who it is.
type ChooserClientCertificate struct {
	// SecretName is a Secret of type kubernetes.io/tls in classbind's namespace, such as one of
	// cert-manager's. classbind needs to get it; deploy/ lets it get classbind-chooser. Without it,
	// classbind shows the certificate of its webhook server. Example: classbind-chooser
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +optional
	SecretName string `json:"secretName,omitempty"`
}

// ChooserFields are what a chooser learns about a claim and its candidates.
type ChooserFields struct {
	// Claim are the fields of the claim. Example: [{path: .spec.nodes}]
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:XValidation:rule="[has(self.path), has(self.label), has(self.annotation)].exists(is, is)",message="name one of path, label and annotation"
	// +listType=atomic
	// +optional
	Claim []Place `json:"claim,omitempty"`

	// Class are the fields of each candidate. Example: [{path: .metadata.name}, {path: .spec.pricePerHour}]
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:XValidation:rule="[has(self.path), has(self.label), has(self.annotation)].exists(is, is)",message="name one of path, label and annotation"
	// +listType=atomic
	// +required
	Class []Place `json:"class"`
}

// WhenUnavailable is what a claim gets if its chooser does not answer.
//
// +kubebuilder:validation:Enum=Draw;Fail
type WhenUnavailable string

// What a claim gets if its chooser does not answer.
const (
	UnavailableDraw WhenUnavailable = "Draw"
	UnavailableFail WhenUnavailable = "Fail"
)

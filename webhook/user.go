package webhook

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/api/v1beta1"
)

// requestFacts is what expressions see as request: the userInfo of an AdmissionRequest, with
// the fields that are set.
func requestFacts(userInfo []byte) (map[string]any, error) {
	if len(userInfo) > v1beta1.MaxUserInfoBytes {
		return nil, malformed("request.userInfo: must have at most %d bytes: the expressions of the ClaimKind look at it",
			v1beta1.MaxUserInfoBytes)
	}
	user := authenticationv1.UserInfo{}
	if len(userInfo) > 0 {
		if err := json.Unmarshal(userInfo, &user, jsontext.AllowDuplicateNames(true)); err != nil {
			return nil, malformed("request.userInfo: %v", err)
		}
	}
	facts, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&user)
	if err != nil {
		return nil, malformed("request.userInfo: %v", err)
	}
	return map[string]any{"userInfo": facts}, nil
}

package webhook

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/classbind/classbind/api/v1alpha1"
)

// requestFacts is what expressions see as request: the userInfo of an AdmissionRequest, with
// the fields that are set.
func requestFacts(userInfo []byte) (map[string]any, error) {
	if len(userInfo) > v1alpha1.MaxUserInfoBytes {
		return nil, malformed("request.userInfo: must have at most %d bytes: the expressions of the ClaimKind look at it",
			v1alpha1.MaxUserInfoBytes)
	}
	user := authenticationv1.UserInfo{}
	if len(userInfo) > 0 {
		if err := json.Unmarshal(userInfo, &user, jsontext.AllowDuplicateNames(true)); err != nil {
			return nil, malformed("request.userInfo: %v", err)
		}
	}
	facts := map[string]any{}
	for name, text := range map[string]string{"username": user.Username, "uid": user.UID} {
		if text != "" {
			facts[name] = text
		}
	}
	if len(user.Groups) > 0 {
		facts["groups"] = list(user.Groups)
	}
	if len(user.Extra) > 0 {
		extra := map[string]any{}
		for name, values := range user.Extra {
			extra[name] = list(values)
		}
		facts["extra"] = extra
	}
	return map[string]any{"userInfo": facts}, nil
}

// list of texts, as JSON is decoded.
func list(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

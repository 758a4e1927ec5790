package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1alpha1"
)

func TestState(t *testing.T) {
	golds := newClassKind("golds.example.org", "Gold")
	index := newIndex(golds, nil)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "example.org", Resource: "golds"}, "", errors.New("no rule"))
	for name, tc := range map[string]struct {
		reason string
		kind   *registered
		want   state
	}{
		"Unknown": {
			reason: "We should say that we have not looked yet.",
			want:   state{reason: v1alpha1.ReasonNotSynced, message: "not looked up yet"},
		},
		"NotInstalled": {
			reason: "We should say that there is no such resource, and what would help.",
			kind:   &registered{err: errNotInstalled},
			want:   state{reason: v1alpha1.ReasonNotInstalled, message: errNotInstalled.Error()},
		},
		"Unsuitable": {
			reason: "We should say which verbs are missing.",
			kind:   &registered{err: fmt.Errorf("%w: no watch", errUnsuitable)},
			want:   state{reason: v1alpha1.ReasonUnsuitable, message: "the resource is not suited: no watch"},
		},
		"NotLookedUp": {
			reason: "We should say why it could not be looked up.",
			kind:   &registered{err: errors.New("connection refused")},
			want:   state{reason: v1alpha1.ReasonNotSynced, message: "connection refused"},
		},
		"NotAnswered": {
			reason: "We should say that the first list is under way.",
			kind:   &registered{watch: &watch{kind: golds}},
			want:   state{reason: v1alpha1.ReasonNotSynced, message: "the API server has not answered yet"},
		},
		"NotSynced": {
			reason: "We should say why the first list failed.",
			kind:   &registered{watch: &watch{kind: golds, err: errors.New("connection refused")}},
			want:   state{reason: v1alpha1.ReasonNotSynced, message: "connection refused"},
		},
		"NotPermitted": {
			reason: "We should say how to permit it.",
			kind:   &registered{watch: &watch{kind: golds, err: forbidden}},
			want: state{
				reason:  v1alpha1.ReasonNotPermitted,
				message: "golds.example.org is forbidden: no rule: label a ClusterRole that allows list and watch with classbind.io/aggregate-to-classbind=true",
			},
		},
		"Served": {
			reason: "We should say that all is well.",
			kind:   &registered{watch: &watch{kind: golds, published: index}},
			want:   state{v1alpha1.ReasonServed, "the classes are offered to claims", index},
		},
		"Stale": {
			reason: "We should say that we offer what we last knew, and why.",
			kind:   &registered{watch: &watch{kind: golds, published: index, err: errors.New("connection refused")}},
			want:   state{v1alpha1.ReasonStale, "the last known classes are offered, because the API server does not list them any more: connection refused", index},
		},
		"StaleForbidden": {
			reason: "We should offer what we last knew of a kind that we may not list any more.",
			kind:   &registered{watch: &watch{kind: golds, published: index, err: forbidden}},
			want:   state{v1alpha1.ReasonStale, "the last known classes are offered, because the API server does not list them any more: golds.example.org is forbidden: no rule", index},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Registration{kinds: map[string]*registered{}}
			if tc.kind != nil {
				r.kinds[golds.Name] = tc.kind
			}
			assert.Equal(t, tc.want, r.state(golds.Name), tc.reason)
		})
	}
}

func TestObserve(t *testing.T) {
	w := &watch{}
	refused, forbidden := errors.New("connection refused"), errors.New("forbidden")
	for _, step := range []struct {
		reason string
		err    error
		want   bool
	}{
		{"It is no news that all is well.", nil, false},
		{"An error is news.", refused, true},
		{"The same error again is none.", errors.New("connection refused"), false},
		{"Another error is news.", forbidden, true},
		{"That we were stopped is none.", fmt.Errorf("cannot list: %w", context.Canceled), false},
		{"That all is well again is news.", nil, true},
	} {
		assert.Equal(t, step.want, w.observe(step.err), step.reason)
	}
}

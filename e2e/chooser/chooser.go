// Package chooser is a chooser of classes, for tests and for those who write one. It does what a cloud provider of Cluster Autoscaler does
// behind gRPC: its classes are node groups, and the cheapest comes first. A node group is a class with spec.instanceType and spec.cpus, the
// CPUs of one node. A claim has spec.cpus, too: it gets as many nodes as it needs for them.
package chooser

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
)

// Prices of a node for an hour, by instance type.
type Prices map[string]float64

// Chooser ranks node groups. The zero value knows no prices, and so has no opinion.
type Chooser struct {
	chooserv1.UnimplementedChooserServer

	// ValidFor is how long its answers are valid; 0, they are not cached.
	ValidFor time.Duration

	mu     sync.Mutex
	prices Prices
	epoch  string
}

// Refresh the prices. Their hash is the epoch, so two replicas of a chooser with the same prices have the same epoch.
func (c *Chooser) Refresh(prices Prices) error {
	text, err := json.Marshal(prices) // Its keys are sorted.
	if err != nil {
		return fmt.Errorf("cannot refresh the prices: %w", err)
	}
	hash := fnv.New64a()
	_, _ = hash.Write(text) // It never fails.
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prices, c.epoch = prices, fmt.Sprintf("%x", hash.Sum64())
	return nil
}

func (c *Chooser) current() (Prices, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.prices, c.epoch
}

// Status has the epoch of the prices.
func (c *Chooser) Status(context.Context, *chooserv1.StatusRequest) (*chooserv1.StatusResponse, error) {
	_, epoch := c.current()
	return &chooserv1.StatusResponse{Epoch: epoch}, nil
}

type claim struct {
	Spec struct {
		CPUs float64 `json:"cpus"`
	} `json:"spec"`
}

type nodeGroup struct {
	Spec struct {
		InstanceType string  `json:"instanceType"`
		CPUs         float64 `json:"cpus"`
	} `json:"spec"`
}

// Rank the candidates by what the nodes for the claim cost. Those without a price follow.
func (c *Chooser) Rank(_ context.Context, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
	if len(r.GetCandidates()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "there are no candidates")
	}
	var asked claim
	if err := json.Unmarshal([]byte(r.GetClaim()), &asked); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "cannot read the claim: %v", err)
	}
	prices, epoch := c.current()
	costs, ids := map[string]float64{}, []string(nil)
	for _, candidate := range r.GetCandidates() {
		var group nodeGroup
		if err := json.Unmarshal([]byte(candidate.GetFields()), &group); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "cannot read the class of candidate %q: %v", candidate.GetId(), err)
		}
		if price, known := prices[group.Spec.InstanceType]; known && group.Spec.CPUs > 0 {
			costs[candidate.GetId()] = price * math.Ceil(max(asked.Spec.CPUs, 1)/group.Spec.CPUs)
			ids = append(ids, candidate.GetId())
		}
	}
	response := &chooserv1.RankResponse{Epoch: epoch}
	if c.ValidFor > 0 {
		response.ValidFor = durationpb.New(c.ValidFor)
	}
	if len(ids) == 0 {
		response.Answer = &chooserv1.RankResponse_NoOpinion{NoOpinion: &chooserv1.NoOpinion{}}
		return response, nil
	}
	slices.SortStableFunc(ids, func(a, b string) int { return cmp.Compare(costs[a], costs[b]) }) // Ties stay in the order of the draw.
	response.Answer = &chooserv1.RankResponse_Order{Order: &chooserv1.Order{Ids: ids}}
	return response, nil
}

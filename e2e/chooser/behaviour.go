package chooser

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
)

// Behaviour answers a call. next answers it as the chooser would.
type Behaviour func(ctx context.Context, request any, next grpc.UnaryHandler) (any, error)

// raw is a response as it is sent.
type raw []byte

// Behaviours by name, each of Rank. Hang, Unimplemented and Unavailable are behaviours of Status, too.
var Behaviours = map[string]Behaviour{
	"Good":          func(ctx context.Context, request any, next grpc.UnaryHandler) (any, error) { return next(ctx, request) },
	"Hang":          hang,
	"HangSome":      hangSome,
	"Garbage":       respond(raw("\xff\xff\xff\xffgarbage")),
	"Nothing":       nothing,
	"EmptyOrder":    order(),
	"Unknown":       order("unknown", "unknown, too"),
	"Many":          order(strings.Fields(strings.Repeat("0 ", 100_000))...),
	"Large":         respond(raw("\x82\x01\x80\x80\xc0\x02" + strings.Repeat("x", 5<<20))), // The field 16, which has 5 MiB.
	"OtherEpoch":    amend(func(r *chooserv1.RankResponse) { r.Epoch = "another" }),
	"LongEpoch":     amend(func(r *chooserv1.RankResponse) { r.Epoch = strings.Repeat("x", 1000) }),
	"NoClass":       none("every node group is sold out"),
	"LongMessage":   none(strings.Repeat("x", 10_000)),
	"NoOpinion":     amend(noOpinion),
	"Unimplemented": fail(codes.Unimplemented),
	"Unavailable":   fail(codes.Unavailable),
	"Random":        randomly,
}

var nothing = amend(func(r *chooserv1.RankResponse) { r.Answer = nil })

func hang(ctx context.Context, _ any, _ grpc.UnaryHandler) (any, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

// hangSome hangs for claims with a thousand CPUs or more.
func hangSome(ctx context.Context, request any, next grpc.UnaryHandler) (any, error) {
	var asked claim
	if r, is := request.(*chooserv1.RankRequest); is && json.Unmarshal([]byte(r.GetClaim()), &asked) == nil && asked.Spec.CPUs >= 1000 {
		return hang(ctx, request, next)
	}
	return next(ctx, request)
}

func fail(code codes.Code) Behaviour {
	return func(context.Context, any, grpc.UnaryHandler) (any, error) {
		return nil, status.Error(code, "it is to fail")
	}
}

func respond(response any) Behaviour {
	return func(context.Context, any, grpc.UnaryHandler) (any, error) { return response, nil }
}

// amend what the chooser would answer.
func amend(change func(*chooserv1.RankResponse)) Behaviour {
	return func(ctx context.Context, request any, next grpc.UnaryHandler) (any, error) {
		response, err := next(ctx, request)
		if r, is := response.(*chooserv1.RankResponse); is && err == nil {
			change(r)
		}
		return response, err
	}
}

func order(ids ...string) Behaviour {
	return amend(func(r *chooserv1.RankResponse) {
		r.Answer = &chooserv1.RankResponse_Order{Order: &chooserv1.Order{Ids: ids}}
	})
}

func none(message string) Behaviour {
	return amend(func(r *chooserv1.RankResponse) {
		r.Answer = &chooserv1.RankResponse_NoClass{NoClass: &chooserv1.NoClass{Message: message}}
	})
}

func noOpinion(r *chooserv1.RankResponse) {
	r.Answer = &chooserv1.RankResponse_NoOpinion{NoOpinion: &chooserv1.NoOpinion{}}
}

// randomly answers anything that keeps the contract, and now and then what does not. Its answers may be cached.
func randomly(ctx context.Context, request any, next grpc.UnaryHandler) (any, error) {
	r, is := request.(*chooserv1.RankRequest)
	if !is {
		return next(ctx, request)
	}
	others := []Behaviour{none("it came to that"), amend(noOpinion), fail(codes.Unavailable), nothing}
	if n := rand.IntN(5 * len(others)); n < len(others) { //nolint:gosec // It need not be hard to guess.
		return others[n](ctx, request, next)
	}
	ids := []string{"unknown"}
	for _, candidate := range r.GetCandidates() {
		ids = append(ids, candidate.GetId(), candidate.GetId())
	}
	//nolint:gosec // None of these numbers needs to be hard to guess.
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = slices.Clip(ids[:1+rand.IntN(len(ids))])                                 //nolint:gosec // The same.
	valid, exclusive := time.Duration(rand.IntN(2))*time.Second, rand.IntN(2) == 0 //nolint:gosec // The same.
	return amend(func(response *chooserv1.RankResponse) {
		response.ValidFor = durationpb.New(valid)
		response.Answer = &chooserv1.RankResponse_Order{Order: &chooserv1.Order{Ids: ids, Exclusive: exclusive}}
	})(ctx, request, next)
}

package race

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// partitionLabel of a class is its partition, where a scenario has partitions.
const partitionLabel = "partition"

// partitions are few, so that classes meet in them.
var partitions = []string{"", "east", "west"}

// setUpPartitions waits until no default can move without the guard: the API servers learn of that a little later than of the guard. A
// default that is to move to where another is must be refused by each of them.
func (l *lane) setUpPartitions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, guardPatience)
	defer cancel()
	for _, kind := range l.kinds.names() {
		probes := []Class{{kind, "probe-1"}, {kind, "probe-2"}}
		for _, c := range probes {
			object := l.object(c, map[string]string{defaultAnnotation: "true"})
			object.SetLabels(map[string]string{partitionLabel: kind + c.Name})
			if _, err := l.classes(kind).Create(ctx, object, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("cannot create %s: %w", c, err)
			}
		}
		why := errors.New("it was not asked")
		err := wait.PollUntilContextCancel(ctx, guardPoll, true, func(ctx context.Context) (bool, error) {
			for _, api := range l.cluster.dynamic {
				_, why = api.Resource(l.resource(kind)).Patch(ctx, probes[1].Name, types.MergePatchType,
					movedTo(kind+probes[0].Name, nil), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				if !apierrors.IsForbidden(why) {
					why = fmt.Errorf("the answer is %v", why) //nolint:errorlint // It may be nil.
					return false, nil
				}
			}
			return true, nil
		})
		if err != nil {
			return fmt.Errorf("a move of a default of %q is not refused: %w: %w", kind, err, why)
		}
		for _, c := range probes {
			if err := l.delete(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// movedTo is a patch that moves a class to a partition. It also sets the mark, unless that is nil.
func movedTo(partition string, mark *string) []byte {
	metadata := map[string]any{"labels": map[string]any{partitionLabel: partition}}
	if mark != nil {
		metadata["annotations"] = map[string]any{defaultAnnotation: *mark}
	}
	patch, _ := json.Marshal(map[string]any{"metadata": metadata}) // It has only texts.
	return patch
}

// partitionsRound has classes become default in any partition, and others move meanwhile.
func (l *lane) partitionsRound(ctx context.Context, number, writers int, r *report) error {
	patchTo := func(mark *string) way {
		return func(ctx context.Context, l *lane, c Class) error {
			_, err := l.classes(c.Kind).Patch(ctx, c.Name, types.MergePatchType, movedTo(anyOf(partitions), mark), metav1.PatchOptions{})
			return err
		}
	}
	var writes []write
	for i := range writers / 2 {
		writes = append(writes, write{l.updatable(i), patchTo(new("true"))}, write{l.updatable(i), patchTo(nil)})
	}
	for i := range writers - writers/2 {
		writes = append(writes, write{Class{l.kind(number + i), fmt.Sprintf("r%d-%d", number, i)}, createdAnywhere})
	}
	return l.raceRound(ctx, number, writes, r)
}

// createdAnywhere is created as the default of any partition.
func createdAnywhere(ctx context.Context, l *lane, c Class) error {
	object := l.object(c, map[string]string{defaultAnnotation: "true"})
	object.SetLabels(map[string]string{partitionLabel: anyOf(partitions)})
	_, err := l.classes(c.Kind).Create(ctx, object, metav1.CreateOptions{})
	return err
}

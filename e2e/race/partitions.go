package race

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// partitionLabel of a class is its partition, where a scenario has partitions.
const partitionLabel = "partition"

// partitions are few, so that classes meet in them. A class is created in any of them.
var partitions = []string{"", "east", "west"}

// movedTo is a patch that moves a class to a partition, and annotates it.
func movedTo(partition string, annotations map[string]string) []byte {
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{ // It has only texts.
		"labels": map[string]any{partitionLabel: partition}, "annotations": annotations,
	}})
	return patch
}

// moved to any partition, and annotated.
func moved(annotations map[string]string) way {
	return func(ctx context.Context, l *lane, c Class) error {
		_, err := l.classes(c.Kind).Patch(ctx, c.Name, types.MergePatchType, movedTo(anyOf(partitions), annotations), metav1.PatchOptions{})
		return err
	}
}

// partitionsRound has classes become default in any partition, and others move meanwhile.
func (l *lane) partitionsRound(ctx context.Context, writers int) error {
	asDefault, asItIs := moved(map[string]string{defaultAnnotation: "true"}), moved(map[string]string{})
	var writes []write
	for i := range writers / 2 {
		writes = append(writes, write{l.updatable(i), asDefault}, write{l.updatable(i), asItIs})
	}
	for i := range writers - writers/2 {
		writes = append(writes, write{Class{l.kind(l.number + i), fmt.Sprintf("r%d-%d", l.number, i)}, created})
	}
	return l.raceRound(ctx, writes)
}

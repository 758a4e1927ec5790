package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// world is what explain decides on, and by what.
type world struct {
	source source
	claims []document
	// namespace of claims that name none.
	namespace string
}

// world of the flags, with the claims of files.
func (o *options) world(ctx context.Context, claims []document, in io.Reader, progress io.Writer) (*world, error) {
	objects, err := o.objects(in, progress)
	if err != nil {
		return nil, err
	}
	files, err := newFiles(ctx, objects, claims)
	if err != nil {
		return nil, err
	}
	if len(o.classes) > 0 {
		if len(files.claimKinds) == 0 {
			return nil, errors.New("--classes: no ClaimKind is among the objects: name the file that registers the kind of the claim")
		}
		files.claimNamespace = cmp.Or(o.namespace, files.namespace)
		return &world{source: files, claims: claims, namespace: files.claimNamespace}, nil
	}
	config, err := o.cluster.Config(progress, ", or files of classes with --classes")
	if err != nil {
		return nil, err
	}
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return nil, err
	}
	c, err := newCluster(config)
	if err != nil {
		return nil, err
	}
	w := &world{source: c, claims: claims, namespace: cmp.Or(o.namespace, namespace)}
	if len(o.with) > 0 {
		files.namespace, files.claimNamespace = namespace, w.namespace
		w.source = &overlay{cluster: c, files: files}
	}
	return w, nil
}

// objects of --classes or --with. A file that is no manifest is left out, with a note.
func (o *options) objects(in io.Reader, progress io.Writer) ([]document, error) {
	r := &fileReader{in: in, recursive: true, skip: func(file string) {
		_, _ = fmt.Fprintf(progress, "note: %q is left out: it is no manifest of Kubernetes\n", file)
	}}
	return r.readAll(slices.Concat(o.classes, o.with))
}

// Reads a Job as JSON and decodes it as Kubernetes' API server does where it is strict: no unknown field, no wrong type.
package main

import (
	"fmt"
	"io"
	"os"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

func fail(what any) {
	fmt.Fprintln(os.Stderr, what)
	os.Exit(1)
}

func main() {
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err)
	}
	var job batchv1.Job
	if err := yaml.UnmarshalStrict(data, &job); err != nil {
		fail(err)
	}
	errs := validation.ValidateObjectMeta(&job.ObjectMeta, true, validation.NameIsDNSLabel, field.NewPath("metadata"))
	errs = append(errs, metav1.ValidateLabels(job.Spec.Template.Labels, field.NewPath("template"))...)
	if len(errs) > 0 {
		fail(errs)
	}
	fmt.Printf("%s %d %s\n", job.Name, *job.Spec.Completions, *job.Spec.CompletionMode)
}

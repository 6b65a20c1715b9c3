// Command argocheck gives compiled pipelines to the compiler of KFP's backend, which makes Argo workflows of them.
//
// Each line of standard input is {"spec": PipelineSpec, "platform": PlatformSpec}, each line of standard output
// {"workflow": ...} or {"error": "..."}: many pipelines in one process, as it takes seconds to start.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/kubeflow/pipelines/api/v2alpha1/go/pipelinespec"
	"github.com/kubeflow/pipelines/backend/src/apiserver/config/proxy"
	"github.com/kubeflow/pipelines/backend/src/v2/compiler/argocompiler"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

type question struct {
	Spec     json.RawMessage `json:"spec"`
	Platform json.RawMessage `json:"platform"`
}

type answer struct {
	Workflow any    `json:"workflow,omitempty"`
	Error    string `json:"error,omitempty"`
}

func compile(asked question) (workflow any, err error) {
	// A pipeline on which the compiler panics is refused; the others are still asked about.
	defer func() {
		if cause := recover(); cause != nil {
			workflow, err = nil, fmt.Errorf("panic: %v", cause)
		}
	}()
	// By the real types first, which know no unknown field.
	if err := protojson.Unmarshal(asked.Spec, &pipelinespec.PipelineSpec{}); err != nil {
		return nil, err
	}
	spec := &structpb.Struct{}
	if err := protojson.Unmarshal(asked.Spec, spec); err != nil {
		return nil, err
	}
	platform := &pipelinespec.PlatformSpec{}
	if len(asked.Platform) > 0 {
		if err := protojson.Unmarshal(asked.Platform, platform); err != nil {
			return nil, err
		}
	}
	job := &pipelinespec.PipelineJob{
		PipelineSpec:  spec,
		RuntimeConfig: &pipelinespec.PipelineJob_RuntimeConfig{ParameterValues: map[string]*structpb.Value{}},
	}
	return argocompiler.Compile(job, platform.GetPlatforms()["kubernetes"], &argocompiler.Options{})
}

func main() {
	// The compiler panics where nobody has said which proxy its pods use.
	proxy.InitializeConfigWithEmptyForTests()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		var told answer
		err := json.Unmarshal(lines.Bytes(), &asked)
		if err == nil {
			told.Workflow, err = compile(asked)
		}
		if err != nil {
			told = answer{Error: err.Error()}
		}
		if err := out.Encode(told); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

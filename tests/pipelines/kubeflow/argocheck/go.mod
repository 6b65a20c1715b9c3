module drivetrain/argocheck

go 1.26

require (
	github.com/kubeflow/pipelines v0.0.0-20260709152847-4a3592cb2dd0
	github.com/kubeflow/pipelines/api v0.0.0-20260709152847-4a3592cb2dd0
	google.golang.org/protobuf v1.36.11
)

// KFP's own go.mod replaces these by folders of its repository: the same commit.
replace (
	github.com/kubeflow/pipelines/api => github.com/kubeflow/pipelines/api v0.0.0-20260709152847-4a3592cb2dd0
	github.com/kubeflow/pipelines/kubernetes_platform => github.com/kubeflow/pipelines/kubernetes_platform v0.0.0-20260709152847-4a3592cb2dd0
)

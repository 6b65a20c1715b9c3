"""The messages of TensorFlow Serving, the Open Inference Protocol, gRPC's health and its reflection, as on the wire.

The definitions are our own: names, numbers and types are those of the public .proto files, what the server does not
read is left out (protobuf keeps fields that it does not know). They live in a pool of descriptors that is nobody
else's, so that one process can hold them beside tensorflow or tritonclient, which define messages of the same names.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from google.protobuf import descriptor_pool, message_factory

from .proto_text import file_descriptor

Message: TypeAlias = Any
"""A protobuf message, whose classes are made as the module is read: a boundary for types."""

_TENSORFLOW: Final = """
package tensorflow;

enum DataType {
  DT_INVALID = 0; DT_FLOAT = 1; DT_DOUBLE = 2; DT_INT32 = 3; DT_UINT8 = 4; DT_INT16 = 5; DT_INT8 = 6; DT_STRING = 7;
  DT_COMPLEX64 = 8; DT_INT64 = 9; DT_BOOL = 10; DT_QINT8 = 11; DT_QUINT8 = 12; DT_QINT32 = 13; DT_BFLOAT16 = 14;
  DT_QINT16 = 15; DT_QUINT16 = 16; DT_UINT16 = 17; DT_COMPLEX128 = 18; DT_HALF = 19; DT_RESOURCE = 20; DT_VARIANT = 21;
  DT_UINT32 = 22; DT_UINT64 = 23; DT_FLOAT8_E5M2 = 24; DT_FLOAT8_E4M3FN = 25; DT_INT4 = 29; DT_UINT4 = 30;
}

message TensorShapeProto {
  message Dim { int64 size = 1; string name = 2; }
  repeated Dim dim = 2;
  bool unknown_rank = 3;
}

message TensorProto {
  DataType dtype = 1;
  TensorShapeProto tensor_shape = 2;
  int32 version_number = 3;
  bytes tensor_content = 4;
  repeated int32 half_val = 13;
  repeated float float_val = 5;
  repeated double double_val = 6;
  repeated int32 int_val = 7;
  repeated bytes string_val = 8;
  repeated float scomplex_val = 9;
  repeated int64 int64_val = 10;
  repeated bool bool_val = 11;
  repeated double dcomplex_val = 12;
  repeated uint32 uint32_val = 16;
  repeated uint64 uint64_val = 17;
  bytes float8_val = 18;
}

message TensorInfo {
  oneof encoding { string name = 1; }
  DataType dtype = 2;
  TensorShapeProto tensor_shape = 3;
}

message SignatureDef {
  map<string, TensorInfo> inputs = 1;
  map<string, TensorInfo> outputs = 2;
  string method_name = 3;
  map<string, TensorProto> defaults = 4;
}

message BytesList { repeated bytes value = 1; }
message FloatList { repeated float value = 1; }
message Int64List { repeated int64 value = 1; }
message Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
message Features { map<string, Feature> feature = 1; }
message Example { Features features = 1; }
"""

_ERROR_CODES: Final = """
package tensorflow.error;

enum Code {
  OK = 0; CANCELLED = 1; UNKNOWN = 2; INVALID_ARGUMENT = 3; DEADLINE_EXCEEDED = 4; NOT_FOUND = 5; ALREADY_EXISTS = 6;
  PERMISSION_DENIED = 7; RESOURCE_EXHAUSTED = 8; FAILED_PRECONDITION = 9; ABORTED = 10; OUT_OF_RANGE = 11;
  UNIMPLEMENTED = 12; INTERNAL = 13; UNAVAILABLE = 14; DATA_LOSS = 15; UNAUTHENTICATED = 16;
}
"""

# In files of their own names: by those protobuf knows that a wrapper is its value in JSON.
_ANY: Final = """
package google.protobuf;
message Any { string type_url = 1; bytes value = 2; }
"""

_WRAPPERS: Final = """
package google.protobuf;
message Int64Value { int64 value = 1; }
"""

_TENSORFLOW_SERVING: Final = """
package tensorflow.serving;
import "tensorflow.proto";
import "error_codes.proto";
import "google/protobuf/any.proto";
import "google/protobuf/wrappers.proto";

message ModelSpec {
  string name = 1;
  oneof version_choice { google.protobuf.Int64Value version = 2; string version_label = 4; }
  string signature_name = 3;
}

message PredictRequest {
  ModelSpec model_spec = 1;
  map<string, tensorflow.TensorProto> inputs = 2;
  repeated string output_filter = 3;
}
message PredictResponse { ModelSpec model_spec = 2; map<string, tensorflow.TensorProto> outputs = 1; }

message ExampleList { repeated tensorflow.Example examples = 1; }
message ExampleListWithContext { repeated tensorflow.Example examples = 1; tensorflow.Example context = 2; }
message Input { oneof kind { ExampleList example_list = 1; ExampleListWithContext example_list_with_context = 2; } }

message Class { string label = 1; float score = 2; }
message Classifications { repeated Class classes = 1; }
message ClassificationResult { repeated Classifications classifications = 1; }
message ClassificationRequest { ModelSpec model_spec = 1; Input input = 2; }
message ClassificationResponse { ModelSpec model_spec = 2; ClassificationResult result = 1; }

message Regression { float value = 1; }
message RegressionResult { repeated Regression regressions = 1; }
message RegressionRequest { ModelSpec model_spec = 1; Input input = 2; }
message RegressionResponse { ModelSpec model_spec = 2; RegressionResult result = 1; }

message InferenceTask { ModelSpec model_spec = 1; string method_name = 2; }
message InferenceResult {
  ModelSpec model_spec = 1;
  oneof result { ClassificationResult classification_result = 2; RegressionResult regression_result = 3; }
}
message MultiInferenceRequest { repeated InferenceTask tasks = 1; Input input = 2; }
message MultiInferenceResponse { repeated InferenceResult results = 1; }

message SignatureDefMap { map<string, tensorflow.SignatureDef> signature_def = 1; }
message GetModelMetadataRequest { ModelSpec model_spec = 1; repeated string metadata_field = 2; }
message GetModelMetadataResponse { ModelSpec model_spec = 1; map<string, google.protobuf.Any> metadata = 2; }

message StatusProto {
  tensorflow.error.Code error_code = 1 [json_name = "error_code"];
  string error_message = 2 [json_name = "error_message"];
}
message GetModelStatusRequest { ModelSpec model_spec = 1; }
message ModelVersionStatus {
  enum State { UNKNOWN = 0; START = 10; LOADING = 20; AVAILABLE = 30; UNLOADING = 40; END = 50; }
  int64 version = 1;
  State state = 2;
  StatusProto status = 3;
}
message GetModelStatusResponse {
  repeated ModelVersionStatus model_version_status = 1 [json_name = "model_version_status"];
}

message FileSystemStoragePathSourceConfig {
  message ServableVersionPolicy {
    message Latest { uint32 num_versions = 1; }
    message All { }
    message Specific { repeated int64 versions = 1; }
    oneof policy_choice { Latest latest = 100; All all = 101; Specific specific = 102; }
  }
}
enum ModelType { MODEL_TYPE_UNSPECIFIED = 0; TENSORFLOW = 1; OTHER = 2; }
message ModelConfig {
  string name = 1;
  string base_path = 2;
  ModelType model_type = 3;
  string model_platform = 4;
  FileSystemStoragePathSourceConfig.ServableVersionPolicy model_version_policy = 7;
  map<string, int64> version_labels = 8;
}
message ModelConfigList { repeated ModelConfig config = 1; }
message ModelServerConfig {
  oneof config { ModelConfigList model_config_list = 1; google.protobuf.Any custom_model_config = 2; }
}
message ReloadConfigRequest { ModelServerConfig config = 1; repeated string metric_names = 2; }
message ReloadConfigResponse { StatusProto status = 1; }

message LogMetadata {
  ModelSpec model_spec = 1;
  repeated string saved_model_tags = 3;
  int64 timestamp_secs = 4;
}
message ClassifyLog { ClassificationRequest request = 1; ClassificationResponse response = 2; }
message RegressLog { RegressionRequest request = 1; RegressionResponse response = 2; }
message PredictLog { PredictRequest request = 1; PredictResponse response = 2; }
message MultiInferenceLog { MultiInferenceRequest request = 1; MultiInferenceResponse response = 2; }
message PredictionLog {
  LogMetadata log_metadata = 1;
  oneof log_type {
    ClassifyLog classify_log = 2;
    RegressLog regress_log = 3;
    PredictLog predict_log = 6;
    MultiInferenceLog multi_inference_log = 4;
  }
}

service PredictionService {
  rpc Classify(ClassificationRequest) returns (ClassificationResponse);
  rpc Regress(RegressionRequest) returns (RegressionResponse);
  rpc Predict(PredictRequest) returns (PredictResponse);
  rpc MultiInference(MultiInferenceRequest) returns (MultiInferenceResponse);
  rpc GetModelMetadata(GetModelMetadataRequest) returns (GetModelMetadataResponse);
}

service ModelService {
  rpc GetModelStatus(GetModelStatusRequest) returns (GetModelStatusResponse);
  rpc HandleReloadConfigRequest(ReloadConfigRequest) returns (ReloadConfigResponse);
}
"""

_INFERENCE: Final = """
package inference;

message ServerLiveRequest { }
message ServerLiveResponse { bool live = 1; }
message ServerReadyRequest { }
message ServerReadyResponse { bool ready = 1; }
message ServerMetadataRequest { }
message ServerMetadataResponse { string name = 1; string version = 2; repeated string extensions = 3; }

message ModelReadyRequest { string name = 1; string version = 2; }
message ModelReadyResponse { bool ready = 1; }
message ModelMetadataRequest { string name = 1; string version = 2; }
message ModelMetadataResponse {
  message TensorMetadata { string name = 1; string datatype = 2; repeated int64 shape = 3; }
  string name = 1;
  repeated string versions = 2;
  string platform = 3;
  repeated TensorMetadata inputs = 4;
  repeated TensorMetadata outputs = 5;
}

message InferParameter {
  oneof parameter_choice {
    bool bool_param = 1;
    int64 int64_param = 2;
    string string_param = 3;
    double double_param = 4;
    uint64 uint64_param = 5;
  }
}
message InferTensorContents {
  repeated bool bool_contents = 1;
  repeated int32 int_contents = 2;
  repeated int64 int64_contents = 3;
  repeated uint32 uint_contents = 4;
  repeated uint64 uint64_contents = 5;
  repeated float fp32_contents = 6;
  repeated double fp64_contents = 7;
  repeated bytes bytes_contents = 8;
}
message ModelInferRequest {
  message InferInputTensor {
    string name = 1;
    string datatype = 2;
    repeated int64 shape = 3;
    map<string, InferParameter> parameters = 4;
    InferTensorContents contents = 5;
  }
  message InferRequestedOutputTensor { string name = 1; map<string, InferParameter> parameters = 2; }
  string model_name = 1;
  string model_version = 2;
  string id = 3;
  map<string, InferParameter> parameters = 4;
  repeated InferInputTensor inputs = 5;
  repeated InferRequestedOutputTensor outputs = 6;
  repeated bytes raw_input_contents = 7;
}
message ModelInferResponse {
  message InferOutputTensor {
    string name = 1;
    string datatype = 2;
    repeated int64 shape = 3;
    map<string, InferParameter> parameters = 4;
    InferTensorContents contents = 5;
  }
  string model_name = 1;
  string model_version = 2;
  string id = 3;
  map<string, InferParameter> parameters = 4;
  repeated InferOutputTensor outputs = 5;
  repeated bytes raw_output_contents = 6;
}
message ModelStreamInferResponse { string error_message = 1; ModelInferResponse infer_response = 2; }

message ModelRepositoryParameter {
  oneof parameter_choice { bool bool_param = 1; int64 int64_param = 2; string string_param = 3; bytes bytes_param = 4; }
}
message RepositoryIndexRequest { string repository_name = 1; bool ready = 2; }
message RepositoryIndexResponse {
  message ModelIndex { string name = 1; string version = 2; string state = 3; string reason = 4; }
  repeated ModelIndex models = 1;
}
message RepositoryModelLoadRequest {
  string repository_name = 1;
  string model_name = 2;
  map<string, ModelRepositoryParameter> parameters = 3;
}
message RepositoryModelLoadResponse { }
message RepositoryModelUnloadRequest {
  string repository_name = 1;
  string model_name = 2;
  map<string, ModelRepositoryParameter> parameters = 3;
}
message RepositoryModelUnloadResponse { }

service GRPCInferenceService {
  rpc ServerLive(ServerLiveRequest) returns (ServerLiveResponse);
  rpc ServerReady(ServerReadyRequest) returns (ServerReadyResponse);
  rpc ServerMetadata(ServerMetadataRequest) returns (ServerMetadataResponse);
  rpc ModelReady(ModelReadyRequest) returns (ModelReadyResponse);
  rpc ModelMetadata(ModelMetadataRequest) returns (ModelMetadataResponse);
  rpc ModelInfer(ModelInferRequest) returns (ModelInferResponse);
  rpc ModelStreamInfer(stream ModelInferRequest) returns (stream ModelStreamInferResponse);
  rpc RepositoryIndex(RepositoryIndexRequest) returns (RepositoryIndexResponse);
  rpc RepositoryModelLoad(RepositoryModelLoadRequest) returns (RepositoryModelLoadResponse);
  rpc RepositoryModelUnload(RepositoryModelUnloadRequest) returns (RepositoryModelUnloadResponse);
}
"""

_HEALTH: Final = """
package grpc.health.v1;

message HealthCheckRequest { string service = 1; }
message HealthCheckResponse {
  enum ServingStatus { UNKNOWN = 0; SERVING = 1; NOT_SERVING = 2; SERVICE_UNKNOWN = 3; }
  ServingStatus status = 1;
}
message HealthListRequest { }
message HealthListResponse { map<string, HealthCheckResponse> statuses = 1; }

service Health {
  rpc Check(HealthCheckRequest) returns (HealthCheckResponse);
  rpc List(HealthListRequest) returns (HealthListResponse);
  rpc Watch(HealthCheckRequest) returns (stream HealthCheckResponse);
}
"""

# Two versions of one text: older clients ask for v1alpha.
_REFLECTION: Final = """
message ServerReflectionRequest {
  string host = 1;
  oneof message_request {
    string file_by_filename = 3;
    string file_containing_symbol = 4;
    ExtensionRequest file_containing_extension = 5;
    string all_extension_numbers_of_type = 6;
    string list_services = 7;
  }
}
message ExtensionRequest { string containing_type = 1; int32 extension_number = 2; }
message ServerReflectionResponse {
  string valid_host = 1;
  ServerReflectionRequest original_request = 2;
  oneof message_response {
    FileDescriptorResponse file_descriptor_response = 4;
    ExtensionNumberResponse all_extension_numbers_response = 5;
    ListServiceResponse list_services_response = 6;
    ErrorResponse error_response = 7;
  }
}
message FileDescriptorResponse { repeated bytes file_descriptor_proto = 1; }
message ExtensionNumberResponse { string base_type_name = 1; repeated int32 extension_number = 2; }
message ListServiceResponse { repeated ServiceResponse service = 1; }
message ServiceResponse { string name = 1; }
message ErrorResponse { int32 error_code = 1; string error_message = 2; }

service ServerReflection {
  rpc ServerReflectionInfo(stream ServerReflectionRequest) returns (stream ServerReflectionResponse);
}
"""

POOL: Final = descriptor_pool.DescriptorPool()
"""Where the definitions live; not protobuf's default pool."""

for _path, _text in (
    ("tensorflow", _TENSORFLOW),
    ("error_codes", _ERROR_CODES),
    ("google/protobuf/any", _ANY),
    ("google/protobuf/wrappers", _WRAPPERS),
    ("tensorflow_serving", _TENSORFLOW_SERVING),
    ("inference", _INFERENCE),
    ("health", _HEALTH),
    ("reflection", "package grpc.reflection.v1;" + _REFLECTION),
    ("reflection_v1alpha", "package grpc.reflection.v1alpha;" + _REFLECTION),
):
    POOL.Add(file_descriptor(f"{_path}.proto", _text))

SERVICES: Final = (
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
    "inference.GRPCInferenceService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
)
"""Every service that is defined."""


def message_class(name: str) -> Any:
    """The class of a message, by its full name: "tensorflow.serving.PredictRequest"."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))


TensorProto: Final = message_class("tensorflow.TensorProto")
SignatureDef: Final = message_class("tensorflow.SignatureDef")
Example: Final = message_class("tensorflow.Example")

ModelSpec: Final = message_class("tensorflow.serving.ModelSpec")
PredictRequest: Final = message_class("tensorflow.serving.PredictRequest")
PredictResponse: Final = message_class("tensorflow.serving.PredictResponse")
ClassificationResponse: Final = message_class("tensorflow.serving.ClassificationResponse")
ClassificationResult: Final = message_class("tensorflow.serving.ClassificationResult")
RegressionResponse: Final = message_class("tensorflow.serving.RegressionResponse")
RegressionResult: Final = message_class("tensorflow.serving.RegressionResult")
MultiInferenceRequest: Final = message_class("tensorflow.serving.MultiInferenceRequest")
MultiInferenceResponse: Final = message_class("tensorflow.serving.MultiInferenceResponse")
SignatureDefMap: Final = message_class("tensorflow.serving.SignatureDefMap")
GetModelMetadataRequest: Final = message_class("tensorflow.serving.GetModelMetadataRequest")
GetModelMetadataResponse: Final = message_class("tensorflow.serving.GetModelMetadataResponse")
GetModelStatusRequest: Final = message_class("tensorflow.serving.GetModelStatusRequest")
GetModelStatusResponse: Final = message_class("tensorflow.serving.GetModelStatusResponse")
ReloadConfigResponse: Final = message_class("tensorflow.serving.ReloadConfigResponse")
ModelServerConfig: Final = message_class("tensorflow.serving.ModelServerConfig")
PredictionLog: Final = message_class("tensorflow.serving.PredictionLog")

ServerLiveResponse: Final = message_class("inference.ServerLiveResponse")
ServerReadyResponse: Final = message_class("inference.ServerReadyResponse")
ServerMetadataResponse: Final = message_class("inference.ServerMetadataResponse")
ModelReadyResponse: Final = message_class("inference.ModelReadyResponse")
ModelMetadataResponse: Final = message_class("inference.ModelMetadataResponse")
InferTensorContents: Final = message_class("inference.InferTensorContents")
ModelInferRequest: Final = message_class("inference.ModelInferRequest")
ModelInferResponse: Final = message_class("inference.ModelInferResponse")
ModelStreamInferResponse: Final = message_class("inference.ModelStreamInferResponse")
RepositoryIndexResponse: Final = message_class("inference.RepositoryIndexResponse")
RepositoryModelLoadResponse: Final = message_class("inference.RepositoryModelLoadResponse")
RepositoryModelUnloadResponse: Final = message_class("inference.RepositoryModelUnloadResponse")

HealthCheckResponse: Final = message_class("grpc.health.v1.HealthCheckResponse")
HealthListResponse: Final = message_class("grpc.health.v1.HealthListResponse")

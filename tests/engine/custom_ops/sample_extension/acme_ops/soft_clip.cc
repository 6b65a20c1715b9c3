// limit * tanh(x / limit), element by element.
#include <cmath>
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Error Impl(float limit, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  if (x.element_count() != y->element_count()) return ffi::Error::InvalidArgument("sizes differ");
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = limit * std::tanh(x.typed_data()[i] / limit);
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(SoftClip, Impl,
    ffi::Ffi::Bind().Attr<float>("limit").Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

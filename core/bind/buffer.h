// The bytes of any Python object that has some, for as long as this lives.
#pragma once

#include <nanobind/nanobind.h>

#include "bytes.h"

namespace rekord {

class Buffer {
 public:
  explicit Buffer(nanobind::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nanobind::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Bytes bytes() const noexcept {
    return {static_cast<const std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

  // A part of the bytes, truncated to what exists.
  Bytes part(size_t begin, size_t end) const noexcept {
    const size_t size = static_cast<size_t>(view_.len);
    end = end < size ? end : size;
    begin = begin < end ? begin : end;
    return bytes().subspan(begin, end - begin);
  }

 private:
  Py_buffer view_{};
};

}  // namespace rekord

// A memory-mapped file, for native code only.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/mman.h>

#include "bytes.h"

namespace rekord {

// Python cannot access it: the file may be truncated, and reading beyond its end is
// only safe inside a GuardedReads.
class Mapping {
 public:
  Mapping(int descriptor, size_t size_bytes) : size_bytes_(size_bytes) {
    if (size_bytes == 0) return;  // nothing can be mapped
    void* const found = mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (found == MAP_FAILED) {
      PyErr_SetFromErrno(PyExc_OSError);
      throw nanobind::python_error();
    }
    data_ = static_cast<std::byte*>(found);
    // Where there is room, the system may bring it in while other things are done.
    madvise(data_, size_bytes, MADV_WILLNEED);
  }
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, size_bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  Bytes bytes() const noexcept { return {data_, size_bytes_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_bytes_;
};

}  // namespace rekord

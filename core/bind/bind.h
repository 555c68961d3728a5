// The parts of the Python module. Only files in this folder include nanobind.
#pragma once

#include <nanobind/nanobind.h>

namespace rekord {

void bind_frames(nanobind::module_& module);
void bind_examples(nanobind::module_& module);
void bind_columns(nanobind::module_& module);
void bind_digest(nanobind::module_& module);
void bind_encode(nanobind::module_& module);
void bind_rows(nanobind::module_& module);
void bind_infer(nanobind::module_& module);
void bind_images(nanobind::module_& module);
void bind_lines(nanobind::module_& module);
void bind_order(nanobind::module_& module);

}  // namespace rekord

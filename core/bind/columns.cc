// Plans, decoders and their columns for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <stdexcept>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/buffer.h"
#include "bind/extents.h"
#include "bind/mapping.h"
#include "bind/output.h"
#include "bind/strings.h"
#include "decode.h"
#include "frame.h"
#include "gather.h"
#include "payload.h"
#include "sequence.h"
#include "sigbus_guard.h"

namespace nb = nanobind;

namespace rekord {
namespace {

// Memory to read into; batches may go on holding parts of it.
struct Slab {
  BlockRef block;

  size_t size() const noexcept { return block->capacity() - kPadding; }
};

template <class Item>
nb::object to_array(const BlockRef& block, size_t count) {
  nb::capsule owner(new BlockRef(block),
                    [](void* p) noexcept { delete static_cast<BlockRef*>(p); });
  return array_over(reinterpret_cast<Item*>(block->data()), count, owner);
}

nb::object offsets_to_array(Growing<int64_t>& offsets) {
  return offsets ? to_array<int64_t>(offsets.block(), offsets.size()) : nb::none();
}

nb::object valid_to_array(Growing<uint8_t>& valid) {
  if (!valid) return nb::none();
  return to_array<bool>(valid.block(), valid.size());
}

// (values, offsets or None, valid or None)
nb::object to_python(const SlotSpec& spec, Column& column) {
  if (spec.skip) return nb::none();
  nb::object values;
  switch (spec.kind) {
    case Kind::ints:
      values = to_array<int64_t>(column.ints.block(), column.ints.size());
      break;
    case Kind::floats:
      values = to_array<float>(column.floats.block(), column.floats.size());
      break;
    default:
      values = nb::cast(StringColumn(column));
  }
  return nb::make_tuple(values, offsets_to_array(column.offsets), valid_to_array(column.valid));
}

using Numbers = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The bytes of a file and where each of its frames begins, in numbers of four or eight bytes.
class IndexedFile {
 public:
  IndexedFile(nb::handle bytes, nb::handle offsets, size_t offset_bytes)
      : owner_(nb::borrow(bytes)), offsets_(offsets), offset_bytes_(offset_bytes) {
    if (offset_bytes != 4 && offset_bytes != 8) throw nb::value_error("offsets of another size");
    bytes_ = is_mapped() ? nb::cast<const Mapping&>(bytes).bytes() : buffer_.emplace(bytes).bytes();
  }

  bool is_mapped() const { return nb::isinstance<Mapping>(owner_); }
  Bytes bytes() const noexcept { return bytes_; }
  size_t records() const noexcept { return offsets_.bytes().size() / offset_bytes_; }
  const std::byte* offset_at(size_t record) const noexcept {
    return offsets_.bytes().data() + record * offset_bytes_;
  }
  // The frame of a record, which reaches to where the next one begins; false where there is none.
  bool frame(size_t record, Bytes& out) const noexcept {
    if (record >= records()) return false;
    const uint64_t begin = load(record);
    const uint64_t end = record + 1 < records() ? load(record + 1) : bytes_.size();
    if (begin > end || end > bytes_.size()) return false;
    out = bytes_.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    return true;
  }

 private:
  uint64_t load(size_t record) const noexcept {
    return offset_bytes_ == 4 ? load_le<uint32_t>(offset_at(record))
                              : load_le<uint64_t>(offset_at(record));
  }

  nb::object owner_;  // of the bytes
  std::optional<Buffer> buffer_;
  Bytes bytes_;
  Buffer offsets_;
  size_t offset_bytes_;
};

// (a slab with the frames of records one behind another, their bytes), or the first that cannot be
// copied.
nb::object gather_frames(Pool& pool, const nb::list& files, const Numbers& which,
                         const Numbers& records) {
  constexpr size_t kAhead = 16;
  const size_t count = which.shape(0);
  if (records.shape(0) != count) throw nb::value_error("arrays of different lengths");
  std::deque<IndexedFile> opened;  // in a deque: they cannot be moved
  std::vector<Bytes> mappings;
  for (nb::handle file : files) {
    opened.emplace_back(file[0], file[1], nb::cast<size_t>(file[2]));
    if (opened.back().is_mapped()) mappings.push_back(opened.back().bytes());
  }
  if (!mappings.empty() && !install_sigbus_guard())
    throw std::runtime_error("mapped files cannot be read safely");
  Slab slab;
  size_t total = 0, missing = count;
  {
    nb::gil_scoped_release unlocked;
    std::vector<Bytes> pieces(count);
    for (size_t i = 0; i < count; ++i)
      if (static_cast<uint64_t>(which.data()[i]) >= opened.size() || records.data()[i] < 0)
        missing = std::min(missing, i);
    for (size_t i = 0; i < missing; ++i) {
      if (i + kAhead < missing) {
        const IndexedFile& coming = opened[static_cast<size_t>(which.data()[i + kAhead])];
        __builtin_prefetch(coming.offset_at(static_cast<size_t>(records.data()[i + kAhead])));
      }
      const IndexedFile& file = opened[static_cast<size_t>(which.data()[i])];
      if (!file.frame(static_cast<size_t>(records.data()[i]), pieces[i])) {
        missing = i;
        break;
      }
      total += pieces[i].size();
    }
    if (missing == count) {
      slab.block = pool.acquire(total + kPadding);
      missing = gather(pieces, mappings, slab.block->data());
    }
  }
  if (missing < count) return nb::int_(missing);
  return nb::make_tuple(std::move(slab), total);
}

struct Fed {
  size_t consumed = 0;
  uint64_t needed = 0;
  Problem frame;
  RowProblem row;
};

// Verifies and decodes frame after frame, while their bytes are in the cache.
template <class AnyDecoder>
Fed feed(AnyDecoder& decoder, const Slab& slab, size_t begin, size_t end, uint64_t remaining,
         size_t rows) {
  Fed fed;
  end = std::min(end, slab.size());
  begin = std::min(begin, end);
  const Bytes bytes(slab.block->data() + begin, end - begin);
  const size_t before = decoder.rows();
  while (decoder.rows() < rows) {
    const FrameProbe look = probe_frame(bytes, fed.consumed, remaining);
    fed.needed = look.needed;
    fed.frame = look.problem;
    if (!look.whole) break;
    fed.row = decoder.add(look.payload, slab.block);
    if (fed.row) break;
    fed.consumed += look.payload.size() + kFramingBytes;
  }
  if (!fed.row) fed.row = decoder.settle();
  if (fed.row) {
    // Rows are settled later than they are added: find the frame of the bad one again.
    fed.frame = {};
    fed.consumed = skip_frames(bytes, remaining, decoder.rows() - before).consumed;
  }
  return fed;
}

template <class AnyDecoder>
nb::tuple feed_from_python(AnyDecoder& decoder, const Slab& slab, size_t begin, size_t end,
                           uint64_t remaining, size_t rows) {
  Fed fed;
  {
    nb::gil_scoped_release unlocked;
    fed = feed(decoder, slab, begin, end, remaining, rows);
  }
  nb::object frame = fed.frame ? nb::cast(fed.frame) : nb::none();
  nb::object row = nb::none();
  if (fed.row) row = nb::make_tuple(fed.row.problem, fed.row.slot);
  return nb::make_tuple(fed.consumed, fed.needed, frame, row);
}

// The payloads from `begin` to `end` of a stretch whose frames have been verified.
template <class AnyDecoder>
nb::tuple feed_payloads(AnyDecoder& decoder, const Slab& slab, const Extents& extents, size_t begin,
                        size_t end) {
  const size_t before = decoder.rows();
  RowProblem row;
  {
    nb::gil_scoped_release unlocked;
    end = std::min(end, extents.items.size());
    for (size_t i = std::min(begin, end); i < end && !row; ++i) {
      const Extent& item = extents.items[i];
      if (item.offset > slab.size() || item.length > slab.size() - item.offset) break;
      row = decoder.add({slab.block->data() + item.offset, static_cast<size_t>(item.length)},
                        slab.block);
    }
    if (!row) row = decoder.settle();
  }
  nb::object refused = nb::none();
  if (row) refused = nb::make_tuple(row.problem, row.slot);
  return nb::make_tuple(decoder.rows() - before, refused);
}

template <class AnyDecoder>
nb::list maybe_odd_rows(const AnyDecoder& decoder) {
  std::vector<size_t> rows = decoder.maybe_odd();
  std::sort(rows.begin(), rows.end());
  nb::list out;
  for (const size_t row : rows) out.append(row);
  return out;
}

// One payload on its own, copied so that it has padding behind it.
template <class AnyDecoder>
nb::object add_from_python(AnyDecoder& decoder, Pool& pool, const nb::bytes& payload) {
  const BlockRef copy = pool.acquire(payload.size() + kPadding);
  std::memcpy(copy->data(), payload.data(), payload.size());
  RowProblem problem = decoder.add({copy->data(), payload.size()}, copy);
  if (!problem) problem = decoder.settle();
  if (!problem) return nb::none();
  return nb::make_tuple(problem.problem, problem.slot);
}

nb::list take_columns(Decoder& decoder, const Plan& plan) {
  nb::list out = columns_to_list(plan, decoder.finish());
  decoder.start();
  return out;
}

nb::tuple take_sequence(SequenceDecoder& decoder, const Plan& context, const Plan& steps) {
  nb::list context_out = columns_to_list(context, decoder.finish_context());
  std::vector<StepColumn> lists = decoder.finish_steps();
  nb::list steps_out;
  for (size_t i = 0; i < lists.size(); ++i) {
    const SlotSpec& spec = steps.slots()[i];
    if (spec.skip) {
      steps_out.append(nb::none());
      continue;
    }
    // (column of the steps, where each record's steps begin, valid or None)
    steps_out.append(nb::make_tuple(to_python(spec, lists[i].column),
                                    offsets_to_array(lists[i].offsets),
                                    valid_to_array(lists[i].valid)));
  }
  decoder.start();
  return nb::make_tuple(context_out, steps_out);
}

// Calls that cannot stand side by side, nor follow one that was thrown out of: memory
// that ran out half-way leaves columns of different lengths. Used with the GIL held.
class OneAtATime {
 public:
  template <class Call>
  auto operator()(Call&& call) {
    if (!ready_) throw std::runtime_error("this batch is in use, or a call to it has failed");
    ready_ = false;
    auto result = call();
    ready_ = true;
    return result;
  }

 private:
  bool ready_ = true;
};

// A decoder and what Python needs of its plan to take the columns out.
struct ExampleBatch {
  OneAtATime alone;
  std::shared_ptr<Plan> plan;
  std::shared_ptr<Pool> pool;
  Decoder decoder;

  ExampleBatch(std::shared_ptr<Plan> p, std::shared_ptr<Pool> q)
      : plan(p), pool(q), decoder(std::move(p), std::move(q)) {}
};

struct SequenceBatch {
  OneAtATime alone;
  std::shared_ptr<Plan> context;
  std::shared_ptr<Plan> steps;
  std::shared_ptr<Pool> pool;
  SequenceDecoder decoder;

  SequenceBatch(std::shared_ptr<Plan> c, std::shared_ptr<Plan> s, std::shared_ptr<Pool> q)
      : context(c), steps(s), pool(q), decoder(std::move(c), std::move(s), std::move(q)) {}
};

struct PayloadBatch {
  OneAtATime alone;
  std::shared_ptr<Pool> pool;
  PayloadDecoder decoder;

  PayloadBatch(bool skip, std::shared_ptr<Pool> q) : pool(q), decoder(skip, std::move(q)) {}
};

nb::list take_payloads(PayloadDecoder& decoder) {
  Column column = decoder.finish();
  nb::list out;
  out.append(to_python(decoder.slot(), column));
  decoder.start();
  return out;
}

// What all batches have, whatever they decode.
template <class Batch>
nb::class_<Batch>& bind_batch(nb::class_<Batch>& batch) {
  return batch.def_prop_ro("rows", [](const Batch& self) { return self.decoder.rows(); })
      .def(
          "feed",
          [](Batch& self, const Slab& slab, size_t begin, size_t end, uint64_t remaining,
             size_t rows) {
            return self.alone(
                [&] { return feed_from_python(self.decoder, slab, begin, end, remaining, rows); });
          },
          nb::arg("slab"), nb::arg("begin"), nb::arg("end"), nb::arg("remaining"), nb::arg("rows"),
          "Verify and decode the frames of slab[begin:end] until there are `rows`.\n\n"
          "Gives (bytes consumed, bytes the next frame needs, problem of a frame or None,\n"
          "(problem, slot) of a row or None).")
      .def(
          "add",
          [](Batch& self, const nb::bytes& payload) {
            return self.alone([&] { return add_from_python(self.decoder, *self.pool, payload); });
          },
          nb::arg("payload"),
          nb::sig("def add(self, payload: bytes) -> tuple[Problem, int] | None"),
          "Decode one payload; (problem, slot) where it is not a row.")
      .def(
          "feed_payloads",
          [](Batch& self, const Slab& slab, const Extents& extents, size_t begin, size_t end) {
            return self.alone(
                [&] { return feed_payloads(self.decoder, slab, extents, begin, end); });
          },
          nb::arg("slab"), nb::arg("extents"), nb::arg("begin"), nb::arg("end"),
          "Decode payloads of a scanned stretch.\n\n"
          "Gives (rows added, (problem, slot) of the payload after them or None).")
      .def_prop_ro(
          "maybe_odd", [](const Batch& self) { return maybe_odd_rows(self.decoder); },
          "Rows that TensorFlow may read differently; `survey` tells whether it does.");
}

SlotSpec slot_spec(const std::string& key, int kind, uint64_t count, bool ragged, bool utf8,
                   bool skip, int missing, nb::handle fill, bool empty_is_missing) {
  SlotSpec spec;
  spec.key = key;
  spec.kind = static_cast<Kind>(kind);
  spec.count = count;
  spec.ragged = ragged;
  spec.utf8 = utf8;
  spec.skip = skip;
  spec.missing = static_cast<Missing>(missing);
  spec.empty_is_missing = empty_is_missing;
  if (spec.missing != Missing::fill) return spec;
  for (nb::handle value : fill) {
    if (spec.kind == Kind::ints) {
      spec.fill_ints.push_back(nb::cast<int64_t>(value));
    } else if (spec.kind == Kind::floats) {
      spec.fill_floats.push_back(nb::cast<float>(value));
    } else {
      const auto bytes = nb::cast<nb::bytes>(value);
      spec.fill_bytes.emplace_back(bytes.c_str(), bytes.size());
    }
  }
  return spec;
}

nb::object text_of(Bytes value) {
  PyObject* text = PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(value.data()),
                                        static_cast<Py_ssize_t>(value.size()), "strict");
  if (text == nullptr) throw nb::python_error();
  return nb::steal(text);
}

nb::object bytes_of(Bytes value) { return nb::bytes(value.data(), value.size()); }

template <class Convert>
nb::list strings_to_list(const StringColumn& strings, size_t begin, size_t end, Convert convert) {
  end = std::min(end, strings.size());
  nb::list out;
  for (size_t i = std::min(begin, end); i < end; ++i) out.append(convert(strings.at(i)));
  return out;
}

// A column of the byte strings of a list.
StringColumn strings_from_list(const nb::list& values) {
  const auto pool = Pool::create(0, false);
  size_t total = 0;
  for (nb::handle value : values) total += nb::cast<nb::bytes>(value).size();
  BlockRef data = pool->acquire(total);
  BlockRef ends = pool->acquire((values.size() + 1) * sizeof(int64_t));
  auto* end = reinterpret_cast<int64_t*>(ends->data());
  int64_t used = 0;
  *end++ = 0;
  for (nb::handle value : values) {
    const auto bytes = nb::cast<nb::bytes>(value);
    std::memcpy(data->data() + used, bytes.data(), bytes.size());
    used += static_cast<int64_t>(bytes.size());
    *end++ = used;
  }
  return StringColumn(std::move(data), std::move(ends), values.size());
}

void bind_strings(nb::module_& module) {
  module.def("strings", &strings_from_list, nb::arg("values"), "A column of byte strings.");

  nb::class_<StringColumn>(module, "StringColumn", "Byte strings of a batch.")
      .def("__len__", &StringColumn::size)
      .def_prop_ro("packed", &StringColumn::packed)
      .def_prop_ro("total_bytes", &StringColumn::total_bytes)
      .def(
          "bytes",
          [](const StringColumn& self, size_t i) {
            if (i >= self.size()) throw nb::index_error();
            return bytes_of(self.at(i));
          },
          nb::arg("index"))
      .def(
          "text",
          [](const StringColumn& self, size_t i) {
            if (i >= self.size()) throw nb::index_error();
            return text_of(self.at(i));
          },
          nb::arg("index"))
      .def(
          "list_bytes",
          [](const StringColumn& self, size_t begin, size_t end) {
            return strings_to_list(self, begin, end, bytes_of);
          },
          nb::arg("begin"), nb::arg("end"))
      .def(
          "list_text",
          [](const StringColumn& self, size_t begin, size_t end) {
            return strings_to_list(self, begin, end, text_of);
          },
          nb::arg("begin"), nb::arg("end"))
      .def(
          "with_bytes_at",
          [](const StringColumn& self, size_t at, const nb::bytes& expected) {
            nb::list out;
            for (size_t i = 0; i < self.size(); ++i) {
              const Bytes one = self.at(i);
              if (one.size() < at || one.size() - at < expected.size()) continue;
              if (std::memcmp(one.data() + at, expected.data(), expected.size()) == 0)
                out.append(i);
            }
            return out;
          },
          nb::arg("at"), nb::arg("expected"),
          // In the stub of this class, `bytes` is its method.
          nb::sig("def with_bytes_at(self, at: int, expected: object) -> list"),
          "The indexes of the strings that have these bytes at this position.")
      .def(
          "pack",
          [](const StringColumn& self, const std::shared_ptr<Pool>& pool) {
            return self.pack(*pool);
          },
          nb::arg("pool"), "The same strings, end to end in one buffer.")
      .def(
          "buffers",
          [](const StringColumn& self) {
            if (!self.packed()) throw nb::value_error("not packed");
            const auto* ends = reinterpret_cast<const int64_t*>(self.ends()->data());
            return nb::make_tuple(
                to_array<int64_t>(self.ends(), self.size() + 1),
                to_array<uint8_t>(self.data(), static_cast<size_t>(ends[self.size()])));
          },
          "(ends, data) of packed strings, without a copy.");
}

}  // namespace

nb::list columns_to_list(const Plan& plan, std::vector<Column>&& columns) {
  nb::list out;
  for (size_t i = 0; i < columns.size(); ++i) out.append(to_python(plan.slots()[i], columns[i]));
  return out;
}

void bind_columns(nb::module_& module) {
  nb::class_<Pool>(module, "Pool", "Buffers that are used again once nobody holds them.")
      .def(
          nb::new_([](size_t idle_bytes, bool poison) { return Pool::create(idle_bytes, poison); }),
          nb::arg("idle_bytes"), nb::arg("poison") = false)
      .def_prop_ro("idle_bytes", &Pool::idle_bytes)
      .def(
          "slab", [](Pool& self, size_t bytes) { return Slab{self.acquire(bytes + kPadding)}; },
          nb::arg("size_bytes"));

  nb::class_<Slab>(module, "Slab", "Memory to read into.")
      .def("__len__", &Slab::size)
      .def(
          "view",
          [](const Slab& self) {
            const nb::object array = to_array<uint8_t>(self.block, self.size());
            PyObject* view = PyMemoryView_FromObject(array.ptr());
            if (view == nullptr) throw nb::python_error();
            return nb::steal(view);
          },
          nb::sig("def view(self) -> memoryview"), "The memory, to write to.")
      .def_prop_ro(
          "holders", [](const Slab& self) { return self.block.use_count(); },
          "How many hold this memory: the slab itself, its views, and batches.");

  module.def(
      "skip_frames",
      [](const Slab& slab, size_t begin, size_t end, uint64_t remaining, size_t most) {
        end = std::min(end, slab.size());
        begin = std::min(begin, end);
        const SkippedFrames result =
            skip_frames({slab.block->data() + begin, end - begin}, remaining, most);
        nb::object problem = result.problem ? nb::cast(result.problem) : nb::none();
        return nb::make_tuple(result.frames, result.consumed, result.needed, problem);
      },
      nb::arg("slab"), nb::arg("begin"), nb::arg("end"), nb::arg("remaining"), nb::arg("most"),
      "Whole frames at the front of slab[begin:end], by their headers alone.\n\n"
      "Gives (frames, bytes consumed, bytes the next frame needs, problem or None).");

  module.def(
      "frame_offsets",
      [](const Slab& slab, size_t begin, size_t end, uint64_t offset) {
        end = std::min(end, slab.size());
        begin = std::min(begin, end);
        std::vector<uint64_t> found;
        {
          nb::gil_scoped_release unlocked;
          const Bytes bytes(slab.block->data() + begin, end - begin);
          size_t at = 0;
          while (true) {
            const FrameProbe look = probe_header(bytes, at, bytes.size());
            if (!look.whole) break;
            found.push_back(offset + at);
            at += look.payload.size() + kFramingBytes;
          }
        }
        const auto block = std::make_shared<std::vector<uint64_t>>(std::move(found));
        nb::capsule owner(new std::shared_ptr<std::vector<uint64_t>>(block), [](void* p) noexcept {
          delete static_cast<std::shared_ptr<std::vector<uint64_t>>*>(p);
        });
        return array_over(block->data(), block->size(), owner);
      },
      nb::arg("slab"), nb::arg("begin"), nb::arg("end"), nb::arg("offset"),
      "Where each of the whole frames in slab[begin:end] begins, the first one at `offset`.");

  module.def(
      "gather", &gather_frames, nb::arg("pool"), nb::arg("files"), nb::arg("which"),
      nb::arg("records"),
      "The frames of records one behind another: records[i] of files[which[i]].\n\n"
      "A file is (its bytes or a Mapping, where its frames begin, the size of such a number).\n"
      "Gives (slab, bytes), or the position of the first record that cannot be copied.");
  module.def("install_sigbus_guard", &install_sigbus_guard,
             "Whether mapped files can be read: a fault in one of them does not end the process.");
  nb::class_<Mapping>(module, "Mapping", "A file that is mapped; only `gather` reads it.")
      .def(nb::init<int, size_t>(), nb::arg("descriptor"), nb::arg("size_bytes"))
      .def("__len__", [](const Mapping& self) { return self.bytes().size(); });

  nb::class_<SlotSpec>(module, "Slot", "One record key of a plan.")
      .def(nb::new_(&slot_spec), nb::arg("key"), nb::arg("kind"), nb::arg("count"),
           nb::arg("ragged"), nb::arg("utf8"), nb::arg("skip"), nb::arg("missing"),
           nb::arg("fill").none(), nb::arg("empty_is_missing") = true)
      .def_ro("key", &SlotSpec::key);

  nb::class_<Plan>(module, "Plan", "The slots of one map, compiled.")
      .def(nb::new_([](std::vector<SlotSpec> slots, bool strict) {
             return std::make_shared<Plan>(std::move(slots), strict);
           }),
           nb::arg("slots"), nb::arg("strict"))
      .def("__len__", [](const Plan& self) { return self.slots().size(); });

  nb::class_<ExampleBatch> examples(module, "ExampleBatch", "Decodes Examples into columns.");
  examples.def(nb::init<std::shared_ptr<Plan>, std::shared_ptr<Pool>>(), nb::arg("plan"),
               nb::arg("pool"));
  bind_batch(examples).def(
      "take",
      [](ExampleBatch& self) {
        return self.alone([&] { return take_columns(self.decoder, *self.plan); });
      },
      "The columns so far, (values, offsets, valid) each; then begin again.");

  nb::class_<SequenceBatch> sequences(module, "SequenceBatch",
                                      "Decodes SequenceExamples into columns.");
  sequences.def(nb::init<std::shared_ptr<Plan>, std::shared_ptr<Plan>, std::shared_ptr<Pool>>(),
                nb::arg("context"), nb::arg("steps"), nb::arg("pool"));
  bind_batch(sequences).def(
      "take",
      [](SequenceBatch& self) {
        return self.alone([&] { return take_sequence(self.decoder, *self.context, *self.steps); });
      },
      "(context columns, step columns) so far; then begin again.");

  nb::class_<PayloadBatch> payloads(module, "PayloadBatch",
                                    "Takes payloads of any kind into one column.");
  payloads.def(nb::init<bool, std::shared_ptr<Pool>>(), nb::arg("skip"), nb::arg("pool"));
  bind_batch(payloads).def(
      "take",
      [](PayloadBatch& self) { return self.alone([&] { return take_payloads(self.decoder); }); },
      "The column so far, as ExampleBatch gives it; then begin again.");

  bind_strings(module);
}

}  // namespace rekord

// Rows to records: any mapping is walked here, and only what is unusual asks Python.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bind/bind.h"
#include "bind/cells.h"
#include "bind/output.h"

namespace nb = nanobind;

namespace rekord {
namespace {

// What reading one row needs; used again for the next.
struct RowScratch {
  Held held;
  std::vector<nb::object> values;  // of the fields, null where the row has none
  std::vector<SlotValues> cells;
  std::vector<StepValues> steps;
  std::vector<std::vector<SlotValues>> step_cells;

  void clear() noexcept {
    held.clear();
    for (nb::object& value : values) value.reset();
  }
};

class RowEncoder {
 public:
  // `validator` has normalize(field, value, step), split_steps(field, value), as_row(row),
  // raise_unknown_keys(row) and raise_too_large(); fields are numbered through.
  RowEncoder(std::shared_ptr<Plan> features, std::shared_ptr<Plan> steps,
             std::shared_ptr<Pool> pool, std::vector<RowField> fields,
             std::vector<RowField> step_fields, nb::object validator)
      : writer_(features, steps),
        features_(std::move(features)),
        steps_(std::move(steps)),
        pool_(std::move(pool)),
        fields_(std::move(fields)),
        step_fields_(std::move(step_fields)),
        reader_(types_),
        normalize_(validator.attr("normalize")),
        split_steps_(validator.attr("split_steps")),
        as_row_(validator.attr("as_row")),
        raise_unknown_keys_(validator.attr("raise_unknown_keys")),
        raise_too_large_(validator.attr("raise_too_large")) {
    for (const SlotSpec& spec : features_->slots()) fills_.push_back(fill_of(spec));
  }

  RowEncoder(const RowEncoder&) = delete;
  RowEncoder& operator=(const RowEncoder&) = delete;

  // One row as a payload.
  nb::bytes encode(nb::handle row) {
    Growing<std::byte> out;
    out.start(*pool_, 1024);
    Lease lease(*this);
    read(row, *lease);
    if (!writer_.add((*lease).cells.data(), (*lease).steps.data(), false, out, *pool_))
      raise_too_large_();
    return nb::bytes(out.data(), out.size());
  }

  // One row as a frame behind those that are waiting; gives how many bytes wait now.
  size_t append(nb::handle row) {
    append_located(row, nb::handle());
    return waiting_.size();
  }

  // The same, and where in the frame the bytes object `blob` lies; None where it is no value
  // of its own.
  nb::tuple append_blob(nb::handle row, const nb::bytes& blob) {
    const size_t at = append_located(row, blob);
    nb::object offset = nb::none();
    if (at != kNowhere) offset = nb::int_(at);
    return nb::make_tuple(waiting_.size(), offset);
  }

  // From now on the values of appended rows are kept, of the slots that `plan` does not skip.
  void keep(std::shared_ptr<Plan> plan) { written_.emplace(std::move(plan), pool_); }

  // What was kept since the last call.
  nb::list take_kept() {
    if (!written_) throw nb::value_error("nothing is kept");
    return columns_to_list(written_->plan(), written_->take());
  }

  // How many rows were appended in all.
  uint64_t appended() const noexcept { return appended_; }

  // The waiting frames.
  nb::object take_waiting() {
    if (!waiting_) waiting_.start(*pool_, 0);
    const size_t size = waiting_.size();
    nb::object array = output_array<uint8_t>(waiting_.block(), size);
    waiting_ = {};
    return array;
  }

 private:
  // A block of the Writer's and a row more: it need not grow on the way.
  static constexpr size_t kStartBytes = (4 << 20) + (256 << 10);
  static constexpr size_t kNowhere = ~size_t{0};

  // The default of a slot, kept as cells are.
  struct Fill {
    std::vector<int64_t> ints;
    std::vector<float> floats;
    std::vector<Bytes> strings;
    Missing missing;
  };

  static Fill fill_of(const SlotSpec& spec) {
    Fill fill{spec.fill_ints, spec.fill_floats, {}, spec.missing};
    for (const std::string& value : spec.fill_bytes)
      fill.strings.push_back(std::as_bytes(std::span(value)));
    return fill;
  }

  // A scratch of its own for each row that is under way: Python code that a row calls
  // may encode another one, or let another thread do so.
  class Lease {
   public:
    explicit Lease(RowEncoder& owner) : owner_(owner) {
      if (owner.idle_.empty()) {
        scratch_ = std::make_unique<RowScratch>();
        scratch_->values.resize(owner.fields_.size() + owner.step_fields_.size());
        scratch_->cells.resize(owner.features_->slots().size());
        if (owner.steps_) {
          scratch_->steps.resize(owner.steps_->slots().size());
          scratch_->step_cells.resize(owner.steps_->slots().size());
        }
      } else {
        scratch_ = std::move(owner.idle_.back());
        owner.idle_.pop_back();
      }
    }
    ~Lease() {
      scratch_->clear();
      owner_.idle_.push_back(std::move(scratch_));
    }
    RowScratch& operator*() noexcept { return *scratch_; }

   private:
    RowEncoder& owner_;
    std::unique_ptr<RowScratch> scratch_;
  };

  void read(nb::handle row, RowScratch& scratch) {
    look_up(row, scratch);
    for (uint32_t i = 0; i < fields_.size(); ++i) read_field(i, scratch);
    for (uint32_t i = 0; i < step_fields_.size(); ++i) read_steps(i, scratch);
  }

  size_t append_located(nb::handle row, nb::handle blob) {
    Lease lease(*this);
    RowScratch& scratch = *lease;
    read(row, scratch);
    // From here on no Python code runs, so that frames of other rows cannot come between.
    if (!waiting_) waiting_.start(*pool_, kStartBytes);
    const size_t begin = waiting_.size();
    size_t at = blob.is_valid() ? slot_of(blob, scratch) : kNowhere;
    if (!writer_.add(scratch.cells.data(), scratch.steps.data(), true, waiting_, *pool_,
                     at == kNowhere ? nullptr : &at))
      raise_too_large_();
    if (written_ && !written_->add(scratch.cells.data()))
      throw nb::value_error("a value that its slot does not declare");
    ++appended_;
    return at == kNowhere ? at : at - begin;
  }

  // The slot whose one value is this very object.
  size_t slot_of(nb::handle blob, const RowScratch& scratch) const {
    const void* data = PyBytes_AS_STRING(blob.ptr());
    const auto size = static_cast<size_t>(PyBytes_GET_SIZE(blob.ptr()));
    for (size_t slot = 0; slot < scratch.cells.size(); ++slot) {
      const SlotValues& cell = scratch.cells[slot];
      if (features_->slots()[slot].kind != Kind::bytes || !cell.present || cell.count != 1)
        continue;
      const Bytes& value = *static_cast<const Bytes*>(cell.values);
      if (value.data() == data && value.size() == size) return slot;
    }
    return kNowhere;
  }

  void look_up(nb::handle row, RowScratch& scratch) {
    nb::object whole = nb::borrow(row);
    if (!PyDict_CheckExact(row.ptr())) whole = as_row_(row);
    Py_ssize_t found = 0;
    const auto look = [&](const RowField& field, nb::object& value) {
      PyObject* item = PyDict_GetItemWithError(whole.ptr(), field.name.ptr());
      if (item == nullptr) {
        if (PyErr_Occurred() != nullptr) throw nb::python_error();
        return;
      }
      ++found;
      if (item != Py_None) value = nb::borrow(item);
    };
    for (size_t i = 0; i < fields_.size(); ++i) look(fields_[i], scratch.values[i]);
    for (size_t i = 0; i < step_fields_.size(); ++i)
      look(step_fields_[i], scratch.values[fields_.size() + i]);
    // A key too many is told of before a value too few: often they are one slip.
    if (found != PyDict_GET_SIZE(whole.ptr())) raise_unknown_keys_(whole);
  }

  void read_field(uint32_t number, RowScratch& scratch) {
    const RowField& field = fields_[number];
    const nb::object& value = scratch.values[number];
    SlotValues* cells = scratch.cells.data() + field.first;
    if (value.is_valid() && reader_.read(field, value.ptr(), scratch.held, cells[0])) return;
    nb::object stored = nb::none();
    if (value.is_valid()) {
      stored = normalize_(number, value, nb::none());
    } else if (fills_[field.first].missing == Missing::refuse) {
      normalize_(number, nb::none(), nb::none());
    }
    if (stored.is_none()) {  // no value, or one that stands for none, as NaT does
      for (uint32_t i = 0; i < field.slots; ++i)
        cells[i] = missing(fills_[field.first + i], field.first + i);
      return;
    }
    take(field, *features_, stored, scratch.held, cells);
  }

  SlotValues missing(const Fill& fill, uint32_t slot) const {
    SlotValues cell;
    if (fill.missing != Missing::fill) return cell;
    cell.present = true;
    switch (features_->slots()[slot].kind) {
      case Kind::ints:
        cell.values = fill.ints.data();
        cell.count = fill.ints.size();
        break;
      case Kind::floats:
        cell.values = fill.floats.data();
        cell.count = fill.floats.size();
        break;
      default:
        cell.values = fill.strings.data();
        cell.count = fill.strings.size();
    }
    return cell;
  }

  // What Python made of a value: one stored list a slot.
  static void take(const RowField& field, const Plan& plan, const nb::object& stored, Held& held,
                   SlotValues* cells) {
    const auto parts = nb::cast<nb::tuple>(stored);
    if (parts.size() != field.slots) throw nb::value_error("one stored list a slot");
    held.objects.push_back(stored);
    for (uint32_t i = 0; i < field.slots; ++i)
      CellReader::take(parts[i], plan.slots()[field.first + i], held, cells[i]);
  }

  void read_steps(uint32_t index, RowScratch& scratch) {
    const RowField& field = step_fields_[index];
    const auto number = static_cast<uint32_t>(fields_.size()) + index;
    const nb::object& value = scratch.values[number];
    for (uint32_t i = 0; i < field.slots; ++i) {
      scratch.steps[field.first + i] = {};
      scratch.step_cells[field.first + i].clear();
    }
    if (!value.is_valid()) {
      if (steps_->slots()[field.first].missing == Missing::refuse)
        normalize_(number, nb::none(), nb::none());
      return;
    }
    std::vector<SlotValues>& first = scratch.step_cells[field.first];
    const Py_ssize_t length = PyObject_Length(value.ptr());
    if (length < 0) PyErr_Clear();  // whatever it is, Python will validate it
    if (length < 0 ||
        !reader_.read_steps(field, value.ptr(), scratch.held, static_cast<size_t>(length), first))
      each_step(field, number, value, scratch);
    for (uint32_t i = 0; i < field.slots; ++i) {
      const std::vector<SlotValues>& cells = scratch.step_cells[field.first + i];
      scratch.steps[field.first + i] = {cells.data(), cells.size(), true};
    }
  }

  void each_step(const RowField& field, uint32_t number, const nb::object& value,
                 RowScratch& scratch) {
    // A tuple of our own: what Python code does to the list changes nothing here.
    const nb::object steps = PyList_CheckExact(value.ptr()) || PyTuple_CheckExact(value.ptr())
                                 ? nb::steal(PySequence_Tuple(value.ptr()))
                                 : split_steps_(number, value);
    if (!steps.is_valid()) throw nb::python_error();
    const auto items = nb::cast<nb::tuple>(steps);
    scratch.held.objects.push_back(items);
    std::vector<SlotValues> cells(field.slots);
    size_t step = 0;
    for (nb::handle item : items) {
      if (!reader_.read(field, item.ptr(), scratch.held, cells[0])) {
        const nb::object stored = normalize_(number, item, step);
        take(field, *steps_, stored, scratch.held, cells.data());
      }
      for (uint32_t i = 0; i < field.slots; ++i)
        scratch.step_cells[field.first + i].push_back(cells[i]);
      ++step;
    }
  }

  NumpyTypes types_;
  RecordWriter writer_;
  std::shared_ptr<Plan> features_;
  std::shared_ptr<Plan> steps_;
  std::shared_ptr<Pool> pool_;
  std::vector<RowField> fields_;
  std::vector<RowField> step_fields_;
  CellReader reader_;
  std::vector<Fill> fills_;
  nb::object normalize_;
  nb::object split_steps_;
  nb::object as_row_;
  nb::object raise_unknown_keys_;
  nb::object raise_too_large_;
  std::vector<std::unique_ptr<RowScratch>> idle_;
  Growing<std::byte> waiting_;
  std::optional<WrittenColumns> written_;
  uint64_t appended_ = 0;
};

RowField row_field(nb::str name, uint32_t first, uint32_t slots, int rule,
                   std::vector<int64_t> dims, int64_t low, int64_t high, nb::handle range,
                   bool exact, nb::object names) {
  RowField field;
  PyObject* interned = name.release().ptr();
  PyUnicode_InternInPlace(&interned);
  field.name = nb::steal(interned);
  field.first = first;
  field.slots = slots;
  field.rule = static_cast<Rule>(rule);
  field.dims = std::move(dims);
  field.low = low;
  field.high = high;
  field.exact = exact;
  field.names = std::move(names);
  if (!range.is_none()) {
    const auto ends = nb::cast<nb::tuple>(range);
    field.ranged = true;
    field.low_float = static_cast<float>(nb::cast<double>(ends[0]));
    field.high_float = static_cast<float>(nb::cast<double>(ends[1]));
  }
  return field;
}

}  // namespace

void bind_rows(nb::module_& module) {
  nb::class_<RowField>(module, "RowField", "How one column of a row is read.")
      .def(nb::new_(&row_field), nb::arg("name"), nb::arg("first"), nb::arg("slots"),
           nb::arg("rule"), nb::arg("dims"), nb::arg("low"), nb::arg("high"),
           nb::arg("range").none(), nb::arg("exact"), nb::arg("names").none());

  nb::class_<RowEncoder>(module, "RowEncoder", "Writes rows as records.")
      .def(nb::init<std::shared_ptr<Plan>, std::shared_ptr<Plan>, std::shared_ptr<Pool>,
                    std::vector<RowField>, std::vector<RowField>, nb::object>(),
           nb::arg("features"), nb::arg("steps").none(), nb::arg("pool"), nb::arg("fields"),
           nb::arg("step_fields"), nb::arg("validator"))
      .def("encode", &RowEncoder::encode, nb::arg("row").none(), "One row as a payload.")
      .def("append", &RowEncoder::append, nb::arg("row").none(),
           "Put one row, framed, behind those that wait; gives how many bytes wait now.")
      .def("append_blob", &RowEncoder::append_blob, nb::arg("row"), nb::arg("blob"),
           "The same; gives how many bytes wait now, and where in the frame the bytes object\n"
           "`blob` lies, or None where it is no value of its own.")
      .def("keep", &RowEncoder::keep, nb::arg("plan"),
           "Keep the values of rows that are appended, of the slots that `plan` does not skip.")
      .def("take_kept", &RowEncoder::take_kept,
           "The columns that were kept: (values, offsets or None, valid or None) a slot.")
      .def_prop_ro("appended", &RowEncoder::appended)
      .def("take", &RowEncoder::take_waiting, "The frames that wait.");
}

}  // namespace rekord

// Which message a payload holds.
//
// Nothing in a record declares its kind, and the messages are similar: an
// ExampleListWithContext also parses as a SequenceExample, and almost anything
// parses as an Example made of unknown fields. So the strictest reading is tried
// first, and a reading counts only if nothing in the payload contradicts it.
#pragma once

#include "bytes.h"

namespace rekord {

enum class PayloadKind : uint8_t {
  example,
  sequence,           // SequenceExample
  list_with_context,  // ExampleListWithContext: 1: Example bytes, repeated; 2: Example bytes
  event,              // tf.Event: 1: double wall time, then what happened
  text,               // UTF-8 without control characters
  proto,              // some other message
  other,
};

PayloadKind recognise(Bytes payload);

}  // namespace rekord

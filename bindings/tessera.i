/* The public header for SWIG. Each language brings its typemaps; the idiomatic layer beside them is written by hand.
 * Handles cross as integers and never own anything on this level. */
%module raw
%{
#include <tessera/tessera.h>
%}
%include <stdint.i>
%immutable tsr_entry::name;
%immutable tsr_piece::text;
#define TSR_API

#ifdef SWIGGO
%include "typemaps/go.i"
#endif

/* Function pointers do not cross: callbacks are a matter of the idiomatic layers. */
%ignore tsr_reader;
%ignore tsr_model_load_reader;
%ignore tsr_model_load_bytes;
%ignore tsr_tensor_borrow;
%ignore tsr_tensor_writable;

/* Their results are arrays as long as ids: in pieces, which show how far it is, they are arrays of their own. */
%ignore tsr_scorer_score;
%ignore tsr_model_score;
%ignore tsr_embedder_embed;
%ignore tsr_tokenizer_encode_batch;

%include <tessera/tessera.h>

/* Sizes of the structs that begin with struct_size. */
%rename(StepSize) tsr_raw_step_size;
%rename(PieceSize) tsr_raw_piece_size;
%inline %{
static size_t tsr_raw_step_size(void) { return sizeof(tsr_step); }
static size_t tsr_raw_piece_size(void) { return sizeof(tsr_piece); }
%}

/* How each argument of tessera.h crosses. The list is one for all languages; a language's file says what the words mean:
 *
 *   TSR_HANDLE(T)                    T*: a handle, as an integer; T**: one that the call makes
 *   TSR_TEXT(NAME)                   (const char* NAME, size_t size): a text of any bytes
 *   TSR_ITEMS(KIND, T, NAME, COUNT)  (T* NAME, size_t COUNT): an array with its length; const T: the call reads it
 *   TSR_COUNTED(KIND, T, COUNT_TYPE, COUNT, NAME)   the same with the count in front
 *   TSR_ARRAY(KIND, T, NAME)         T* NAME: an array that may be absent, whose length another argument tells
 *   TSR_RESULT(KIND, T, NAME)        T* NAME: one value that the call writes
 *
 * KIND names the element: byte, int32, uint32, int64, size, float32, float64, uint8. */
TSR_HANDLE(tsr_status)
TSR_HANDLE(tsr_text)
TSR_HANDLE(tsr_options)
TSR_HANDLE(tsr_runtime)
TSR_HANDLE(tsr_devices)
TSR_HANDLE(tsr_calibration)
TSR_HANDLE(tsr_tensor)
TSR_HANDLE(tsr_graph)
TSR_HANDLE(tsr_tokenizer)
TSR_HANDLE(tsr_model)
TSR_HANDLE(tsr_loading)
TSR_HANDLE(tsr_conversion)
TSR_HANDLE(tsr_export)
TSR_HANDLE(tsr_imatrix)
TSR_HANDLE(tsr_chat)
TSR_HANDLE(tsr_dataset)
TSR_HANDLE(tsr_plan)
TSR_HANDLE(tsr_program)
TSR_HANDLE(tsr_session)
TSR_HANDLE(tsr_trainer)
TSR_HANDLE(tsr_generator)
TSR_HANDLE(tsr_scorer)
TSR_HANDLE(tsr_embedder)

TSR_TEXT(text)
TSR_TEXT(prompt)
TSR_TEXT(messages)

TSR_ITEMS(byte, char, buffer, capacity)
TSR_ITEMS(int32, int32_t, ids, capacity)
TSR_ITEMS(int32, int32_t, items, capacity)
TSR_ITEMS(float32, float, items, capacity)
TSR_ITEMS(uint8, uint8_t, items, capacity)
TSR_ITEMS(uint32, tsr_value, outputs, capacity)
TSR_ITEMS(int32, const int32_t, ids, count)
TSR_ITEMS(int64, const int64_t, values, count)
TSR_ITEMS(size, const size_t, lengths, text_count)
TSR_ITEMS(size, const size_t, literal, literal_count)
TSR_ITEMS(uint32, const tsr_value, inputs, input_count)
TSR_ITEMS(int64, const int64_t, graphs, graph_count)
TSR_ITEMS(int64, const int64_t, plans, plan_count)
TSR_ITEMS(uint8, const uint8_t, bytes, size)
TSR_COUNTED(int64, const int64_t, int32_t, rank, dims)

TSR_ARRAY(size, size_t, begins)
TSR_ARRAY(size, size_t, counts)
TSR_ARRAY(uint8, uint8_t, assistant)
TSR_ARRAY(float32, float, out_logprobs)
TSR_ARRAY(uint8, uint8_t, out_greedy)
TSR_ARRAY(float32, float, out_rows)
TSR_ARRAY(int64, int64_t, out_dims)

TSR_RESULT(size, size_t, out_size)
TSR_RESULT(size, size_t, out_count)
TSR_RESULT(int32, int32_t, out_level)
TSR_RESULT(int32, int32_t, out_rank)
TSR_RESULT(int32, tsr_dtype, out_dtype)
TSR_RESULT(float64, double, out_loss)
TSR_RESULT(float64, double, out_done)
TSR_RESULT(int64, int64_t, out_extent)
TSR_RESULT(uint32, tsr_value, out_value)

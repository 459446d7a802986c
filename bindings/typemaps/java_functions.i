/* Java's own functions: structs as arrays, memory of tensors as direct buffers, and the callbacks. A callback enters Java
 * through dev.tessera.raw.Callbacks, which catches all that is thrown; a thread that Java does not know is attached for the
 * callback, as a daemon. */
%{
static JavaVM* tsr_java_vm = NULL;
static jclass tsr_java_callbacks = NULL;
/* The methods of Callbacks, by name. */
static jmethodID tsr_java_read_method, tsr_java_release_method, tsr_java_log_method, tsr_java_allocate_method,
    tsr_java_deallocate_method, tsr_java_thread_started_method;
static const struct {
  jmethodID* method;
  const char *name, *type;
} tsr_java_methods[] = {
    {&tsr_java_read_method, "read", "(Ljava/lang/Object;JLjava/nio/ByteBuffer;)Z"},
    {&tsr_java_release_method, "release", "(Ljava/lang/Object;)V"},
    {&tsr_java_log_method, "log", "(Ljava/lang/Object;I[B)V"},
    {&tsr_java_allocate_method, "allocate", "(Ljava/lang/Object;JJ)J"},
    {&tsr_java_deallocate_method, "deallocate", "(Ljava/lang/Object;JJ)V"},
    {&tsr_java_thread_started_method, "threadStarted", "(Ljava/lang/Object;Ljava/lang/String;I)V"},
};

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM* vm, void* reserved) {
  JNIEnv* env = NULL;
  (void)reserved;
  if ((*vm)->GetEnv(vm, (void**)&env, JNI_VERSION_10) != JNI_OK) return JNI_ERR;
  const jclass callbacks = (*env)->FindClass(env, "dev/tessera/raw/Callbacks");
  if (callbacks == NULL) return JNI_ERR;
  for (size_t i = 0; i < sizeof tsr_java_methods / sizeof tsr_java_methods[0]; ++i) {
    *tsr_java_methods[i].method =
        (*env)->GetStaticMethodID(env, callbacks, tsr_java_methods[i].name, tsr_java_methods[i].type);
    if (*tsr_java_methods[i].method == NULL) return JNI_ERR;
  }
  tsr_java_callbacks = (jclass)(*env)->NewGlobalRef(env, callbacks);
  (*env)->DeleteLocalRef(env, callbacks);
  if (tsr_java_callbacks == NULL) return JNI_ERR;
  tsr_java_vm = vm;
  return JNI_VERSION_10;
}

/* The environment of this thread, which leave detaches where enter attached it; NULL where Java is gone. */
static JNIEnv* tsr_java_enter(int* attached) {
  JNIEnv* env = NULL;
  JavaVMAttachArgs arguments = {JNI_VERSION_10, (char*)"tessera", NULL};
  *attached = 0;
  if ((*tsr_java_vm)->GetEnv(tsr_java_vm, (void**)&env, JNI_VERSION_10) == JNI_OK) return env;
  if ((*tsr_java_vm)->AttachCurrentThreadAsDaemon(tsr_java_vm, (void**)&env, &arguments) != JNI_OK) return NULL;
  *attached = 1;
  return env;
}

/* numbers [1]: the step; values [8]: loss, grad_norm, lr, seconds, then the rewards of a preference loss. */
static void tsr_java_give_step(JNIEnv* env, const tsr_step* step, jlongArray numbers, jdoubleArray values) {
  const jlong number = step->step;
  const jdouble found[8] = {step->loss,          step->grad_norm,       step->lr,            step->seconds,
                            step->chosen_reward, step->rejected_reward, step->reward_margin, step->reward_accuracy};
  (*env)->SetLongArrayRegion(env, numbers, 0, 1, &number);
  (*env)->SetDoubleArrayRegion(env, values, 0, 8, found);
}

static void tsr_java_leave(int attached) {
  if (attached) (*tsr_java_vm)->DetachCurrentThread(tsr_java_vm);
}

/* Whether something was thrown, which is dropped. */
static int tsr_java_thrown(JNIEnv* env) {
  if (!(*env)->ExceptionCheck(env)) return 0;
  (*env)->ExceptionClear(env);
  return 1;
}

static int32_t tsr_java_read_at(void* context, int64_t offset, void* out, size_t bytes) {
  enum { kLargest = 1 << 30 };
  int attached = 0, failed = 0;
  JNIEnv* env = tsr_java_enter(&attached);
  if (env == NULL) return 1;
  for (size_t at = 0; at < bytes && !failed;) {
    const size_t part = bytes - at < kLargest ? bytes - at : kLargest;
    const jobject buffer = (*env)->NewDirectByteBuffer(env, (char*)out + at, (jlong)part);
    failed = buffer == NULL || !(*env)->CallStaticBooleanMethod(env, tsr_java_callbacks, tsr_java_read_method,
                                                               (jobject)context, (jlong)(offset + (int64_t)at), buffer);
    if (tsr_java_thrown(env)) failed = 1;
    if (buffer != NULL) (*env)->DeleteLocalRef(env, buffer);
    at += part;
  }
  tsr_java_leave(attached);
  return failed;
}

static void tsr_java_release_reader(void* context) {
  int attached = 0;
  JNIEnv* env = tsr_java_enter(&attached);
  if (env == NULL) return;
  (*env)->CallStaticVoidMethod(env, tsr_java_callbacks, tsr_java_release_method, (jobject)context);
  tsr_java_thrown(env);
  (*env)->DeleteGlobalRef(env, (jobject)context);
  tsr_java_leave(attached);
}

static void tsr_java_release_object(void* context) {
  int attached = 0;
  JNIEnv* env = tsr_java_enter(&attached);
  if (env == NULL) return;
  (*env)->DeleteGlobalRef(env, (jobject)context);
  tsr_java_leave(attached);
}

/* Bytes of a tensor from offset on as a buffer over its memory; null where there are not so many. */
static jobject tsr_java_view(JNIEnv* env, const tsr_tensor* tensor, const void* data, int64_t offset, int64_t size) {
  static char none;
  const int64_t all = (int64_t)tsr_tensor_bytes(tensor);
  if (offset < 0 || size < 0 || offset > all || size > all - offset || size > INT_MAX || (data == NULL && size > 0)) {
    return NULL;
  }
  return (*env)->NewDirectByteBuffer(env, size > 0 ? (char*)data + offset : &none, (jlong)size);
}
%}
%inline %{
/* TSR_VERSION of the header that this was compiled with. */
static uint32_t tsr_raw_header_version(void) { return TSR_VERSION; }

static jobject tsr_raw_tensor_data(JNIEnv* jenv, const tsr_tensor* tensor, int64_t offset, int64_t size) {
  return tsr_java_view(jenv, tensor, tsr_tensor_data(tensor), offset, size);
}
static jobject tsr_raw_tensor_writable(JNIEnv* jenv, tsr_tensor* tensor, int64_t offset, int64_t size) {
  return tsr_java_view(jenv, tensor, tsr_tensor_writable(tensor), offset, size);
}

/* The tensor keeps the direct buffer, and so its memory, until nothing uses it any more. */
static tsr_status* tsr_raw_tensor_borrow(JNIEnv* jenv, tsr_dtype dtype, int32_t rank, const int64_t* dims, jobject buffer,
                                         tsr_tensor** out_tensor) {
  const jobject kept = (*jenv)->NewGlobalRef(jenv, buffer);
  if (kept == NULL) {
    tsr_java_no_memory(jenv);
    return NULL;
  }
  return tsr_tensor_borrow(dtype, rank, dims, (*jenv)->GetDirectBufferAddress(jenv, buffer),
                           (size_t)(*jenv)->GetDirectBufferCapacity(jenv, buffer), tsr_java_release_object, kept, out_tensor);
}

/* The same of a model in a direct buffer. */
static tsr_status* tsr_raw_model_load_bytes(JNIEnv* jenv, jobject buffer, tsr_model** out_model) {
  const jobject kept = (*jenv)->NewGlobalRef(jenv, buffer);
  if (kept == NULL) {
    tsr_java_no_memory(jenv);
    return NULL;
  }
  return tsr_model_load_bytes((*jenv)->GetDirectBufferAddress(jenv, buffer),
                              (size_t)(*jenv)->GetDirectBufferCapacity(jenv, buffer), tsr_java_release_object, kept, out_model);
}

/* source: what Callbacks.read and Callbacks.release take. */
static tsr_status* tsr_raw_model_load_reader(JNIEnv* jenv, jobject source, int64_t size, tsr_model** out_model) {
  tsr_reader reader;
  memset(&reader, 0, sizeof reader);
  reader.struct_size = sizeof reader;
  reader.context = (*jenv)->NewGlobalRef(jenv, source);
  reader.size = size;
  reader.read_at = tsr_java_read_at;
  reader.release = tsr_java_release_reader;
  if (reader.context == NULL) {
    tsr_java_no_memory(jenv);
    return NULL;
  }
  return tsr_model_load_reader(&reader, out_model);
}

/* fraction [1]; counts [2]: done and total; texts [2]: the bytes of unit and label. */
static tsr_status* tsr_raw_work_progress(JNIEnv* jenv, const tsr_work* work, jdoubleArray fraction, jlongArray counts,
                                         jobjectArray texts) {
  tsr_progress progress;
  memset(&progress, 0, sizeof progress);
  progress.struct_size = sizeof progress;
  tsr_status* status = tsr_work_progress(work, &progress);
  if (status != NULL) return status;
  const jlong found[2] = {progress.done, progress.total};
  (*jenv)->SetDoubleArrayRegion(jenv, fraction, 0, 1, &progress.fraction);
  (*jenv)->SetLongArrayRegion(jenv, counts, 0, 2, found);
  const jbyteArray unit = tsr_java_bytes(jenv, progress.unit, strlen(progress.unit));
  if (unit != NULL) (*jenv)->SetObjectArrayElement(jenv, texts, 0, unit);
  const jbyteArray label = unit == NULL ? NULL : tsr_java_bytes(jenv, progress.label, strlen(progress.label));
  if (label != NULL) (*jenv)->SetObjectArrayElement(jenv, texts, 1, label);
  return NULL;
}

static tsr_status* tsr_raw_trainer_step(JNIEnv* jenv, tsr_trainer* trainer, jlongArray numbers, jdoubleArray values) {
  tsr_step step;
  memset(&step, 0, sizeof step);
  step.struct_size = sizeof step;
  tsr_status* status = tsr_trainer_step(trainer, &step);
  tsr_java_give_step(jenv, &step, numbers, values);
  return status;
}
static tsr_status* tsr_raw_trainer_optimizer_step(JNIEnv* jenv, tsr_trainer* trainer, const tsr_options* options,
                                                  jlongArray numbers, jdoubleArray values) {
  tsr_step step;
  memset(&step, 0, sizeof step);
  step.struct_size = sizeof step;
  tsr_status* status = tsr_trainer_optimizer_step(trainer, options, &step);
  tsr_java_give_step(jenv, &step, numbers, values);
  return status;
}

/* fields [3]: kind, finish, token; text [1]: the bytes of a piece. */
static tsr_status* tsr_raw_generator_next(JNIEnv* jenv, tsr_generator* generator, double timeout_s, jintArray fields,
                                          jobjectArray text) {
  tsr_piece piece;
  memset(&piece, 0, sizeof piece);
  piece.struct_size = sizeof piece;
  tsr_status* status = tsr_generator_next(generator, timeout_s, &piece);
  const jint found[3] = {piece.kind, piece.finish, piece.token};
  (*jenv)->SetIntArrayRegion(jenv, fields, 0, 3, found);
  if (status == NULL && piece.kind == TSR_PIECE) {
    const jbyteArray bytes = tsr_java_bytes(jenv, piece.text, piece.text_size);
    if (bytes != NULL) (*jenv)->SetObjectArrayElement(jenv, text, 0, bytes);
  }
  return status;
}

/* fields [4]: kind, finish, index, token; request [1]; texts [2]: the bytes of text and details. */
static tsr_status* tsr_raw_engine_next(JNIEnv* jenv, tsr_engine* engine, double timeout_s, jintArray fields,
                                       jlongArray request, jobjectArray texts) {
  tsr_event event;
  memset(&event, 0, sizeof event);
  event.struct_size = sizeof event;
  tsr_status* status = tsr_engine_next(engine, timeout_s, &event);
  if (status != NULL) return status;
  const jint found[4] = {event.kind, event.finish, event.index, event.token};
  const jlong number = event.request;
  (*jenv)->SetIntArrayRegion(jenv, fields, 0, 4, found);
  (*jenv)->SetLongArrayRegion(jenv, request, 0, 1, &number);
  const jbyteArray text = tsr_java_bytes(jenv, event.text, event.text_size);
  if (text != NULL) (*jenv)->SetObjectArrayElement(jenv, texts, 0, text);
  const jbyteArray details = text == NULL ? NULL : tsr_java_bytes(jenv, event.details, event.details_size);
  if (details != NULL) (*jenv)->SetObjectArrayElement(jenv, texts, 1, details);
  return NULL;
}

/* kind, step and loss [1] each; details [1]: the bytes of a JSON object. */
static tsr_status* tsr_raw_run_next(JNIEnv* jenv, tsr_run* run, jintArray kind, jlongArray step, jdoubleArray loss,
                                    jobjectArray details) {
  tsr_run_event event;
  memset(&event, 0, sizeof event);
  event.struct_size = sizeof event;
  tsr_status* status = tsr_run_next(run, &event);
  if (status != NULL) return status;
  const jint found = event.kind;
  const jlong number = event.step;
  (*jenv)->SetIntArrayRegion(jenv, kind, 0, 1, &found);
  (*jenv)->SetLongArrayRegion(jenv, step, 0, 1, &number);
  (*jenv)->SetDoubleArrayRegion(jenv, loss, 0, 1, &event.loss);
  const jbyteArray bytes = tsr_java_bytes(jenv, event.details, event.details_size);
  if (bytes != NULL) (*jenv)->SetObjectArrayElement(jenv, details, 0, bytes);
  return NULL;
}
%}

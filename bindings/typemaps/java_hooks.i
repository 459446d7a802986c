/* Java's functions that a runtime calls: its log, its memory and its threads. Contexts are global references, which Callbacks
 * takes; they are freed when the runtime releases them. */
%{
static void tsr_java_log(void* context, int32_t level, const char* text) {
  int attached = 0;
  JNIEnv* env = tsr_java_enter(&attached);
  if (env == NULL) return;
  const jbyteArray bytes = tsr_java_bytes(env, text, strlen(text));
  if (bytes != NULL) {
    (*env)->CallStaticVoidMethod(env, tsr_java_callbacks, tsr_java_log_method, (jobject)context, (jint)level, bytes);
    (*env)->DeleteLocalRef(env, bytes);
  }
  tsr_java_thrown(env);
  tsr_java_leave(attached);
}

static void* tsr_java_allocate(void* context, size_t bytes, size_t alignment) {
  int attached = 0;
  JNIEnv* env = tsr_java_enter(&attached);
  if (env == NULL) return NULL;
  jlong address = (*env)->CallStaticLongMethod(env, tsr_java_callbacks, tsr_java_allocate_method, (jobject)context,
                                               (jlong)bytes, (jlong)alignment);
  if (tsr_java_thrown(env)) address = 0;
  tsr_java_leave(attached);
  return (void*)(intptr_t)address;
}

static void tsr_java_deallocate(void* context, void* memory, size_t bytes) {
  int attached = 0;
  JNIEnv* env = tsr_java_enter(&attached);
  if (env == NULL) return;
  (*env)->CallStaticVoidMethod(env, tsr_java_callbacks, tsr_java_deallocate_method, (jobject)context,
                               (jlong)(intptr_t)memory, (jlong)bytes);
  tsr_java_thrown(env);
  tsr_java_leave(attached);
}

static void tsr_java_thread_started(void* context, const char* role, int32_t number) {
  int attached = 0;
  JNIEnv* env = tsr_java_enter(&attached);
  if (env == NULL) return;
  const jstring name = (*env)->NewStringUTF(env, role);
  if (name != NULL) {
    (*env)->CallStaticVoidMethod(env, tsr_java_callbacks, tsr_java_thread_started_method, (jobject)context, name,
                                 (jint)number);
    (*env)->DeleteLocalRef(env, name);
  }
  tsr_java_thrown(env);
  tsr_java_leave(attached);
}
%}
%inline %{
/* log: the object passed to Callbacks.log; null removes the log. */
static tsr_status* tsr_raw_runtime_set_log(JNIEnv* jenv, tsr_runtime* runtime, jobject log) {
  if (log == NULL) return tsr_runtime_set_log(runtime, NULL, NULL, NULL);
  const jobject kept = (*jenv)->NewGlobalRef(jenv, log);
  if (kept == NULL) {
    tsr_java_no_memory(jenv);
    return NULL;  /* the pending OutOfMemoryError is the error */
  }
  return tsr_runtime_set_log(runtime, tsr_java_log, tsr_java_release_object, kept);
}

/* host: the object passed to Callbacks.allocate, deallocate and threadStarted; has_memory: it has an allocator. */
static tsr_status* tsr_raw_runtime_new_with_hooks(JNIEnv* jenv, const tsr_options* options, jobject host,
                                                  int32_t has_memory, tsr_runtime** out_runtime) {
  tsr_hooks hooks;
  memset(&hooks, 0, sizeof hooks);
  hooks.struct_size = sizeof hooks;
  hooks.context = (*jenv)->NewGlobalRef(jenv, host);
  if (hooks.context == NULL) {
    tsr_java_no_memory(jenv);
    return NULL;  /* the pending OutOfMemoryError is the error */
  }
  if (has_memory) {
    hooks.allocate = tsr_java_allocate;
    hooks.deallocate = tsr_java_deallocate;
  }
  hooks.thread_started = tsr_java_thread_started;
  hooks.release = tsr_java_release_object;
  return tsr_runtime_new_with_hooks(options, &hooks, out_runtime);
}

static int64_t tsr_raw_buffer_address(JNIEnv* jenv, jobject buffer) {
  return (int64_t)(intptr_t)(*jenv)->GetDirectBufferAddress(jenv, buffer);
}
%}

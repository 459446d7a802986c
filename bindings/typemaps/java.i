/* Java: handles are long, texts byte[] of UTF-8, arrays arrays of Java, what may be absent null, results arrays of one
 * element. Memory of Java is copied for the call; what a call writes is copied back. */
%{
#include <limits.h>
#include <string.h>
%}
/* SWIG would take a `long` of C, which int64_t is, for an int of Java. */
%apply long long { long };

%fragment("tsr_java", "header") %{
/* Throws OutOfMemoryError unless something is thrown already. */
static void tsr_java_no_memory(JNIEnv* jenv) {
  if ((*jenv)->ExceptionCheck(jenv)) return;
  const jclass error = (*jenv)->FindClass(jenv, "java/lang/OutOfMemoryError");
  if (error != NULL) (*jenv)->ThrowNew(jenv, error, "tessera: no memory for a copy of an argument or result");
}

/* The bytes of an array with a NUL after them, for free(); NULL for null, and with an exception where there is no memory. */
static char* tsr_java_text(JNIEnv* jenv, jbyteArray array) {
  if (array == NULL) return NULL;
  const jsize size = (*jenv)->GetArrayLength(jenv, array);
  char* text = (char*)malloc((size_t)size + 1);
  if (text == NULL) {
    tsr_java_no_memory(jenv);
    return NULL;
  }
  (*jenv)->GetByteArrayRegion(jenv, array, 0, size, (jbyte*)text);
  text[size] = 0;
  return text;
}

static jbyteArray tsr_java_bytes(JNIEnv* jenv, const char* text, size_t size) {
  if (text == NULL) return NULL;
  const jbyteArray array = size > INT_MAX ? NULL : (*jenv)->NewByteArray(jenv, (jsize)size);
  if (array == NULL) tsr_java_no_memory(jenv);
  else (*jenv)->SetByteArrayRegion(jenv, array, 0, (jsize)size, (const jbyte*)text);
  return array;
}

/* What becomes of the copy of an array: arrays that a call only reads are not written back. */
#define TSR_JAVA_MODE(T)                                                                                      \
  _Generic((T*)0, const char*: JNI_ABORT, const uint8_t*: JNI_ABORT, const int32_t*: JNI_ABORT,               \
           const uint32_t*: JNI_ABORT, const int64_t*: JNI_ABORT, const size_t*: JNI_ABORT,                   \
           const float*: JNI_ABORT, default: 0)
_Static_assert(sizeof(size_t) == sizeof(jlong) && sizeof(void*) == sizeof(jlong), "a system of 64 bits is needed");
%}

%define TSR_JAVA_TYPE(JNI, JAVA, PARAMETERS...)
%typemap(jni) PARAMETERS JNI
%typemap(jtype) PARAMETERS JAVA
%typemap(jstype) PARAMETERS JAVA
%typemap(javain) PARAMETERS "$javainput"
%typemap(javaout) PARAMETERS { return $jnicall; }
%enddef

%define TSR_HANDLE(T)
TSR_JAVA_TYPE("jlong", "long", T*)
TSR_JAVA_TYPE("jlong", "long", const T*)
%typemap(in) T*, const T* { $1 = ($1_ltype)(intptr_t)$input; }
%typemap(out) T*, const T* { $result = (jlong)(intptr_t)$1; }
%typemap(freearg) T*, const T* ""
TSR_JAVA_TYPE("jlongArray", "long[]", T**)
%typemap(in) T** (T* made) {
  made = NULL;
  $1 = $input ? &made : NULL;
}
%typemap(argout) T** {
  const jlong value$argnum = (jlong)(intptr_t)made$argnum;
  if ($input) (*jenv)->SetLongArrayRegion(jenv, $input, 0, 1, &value$argnum);
}
%typemap(freearg) T** ""
%enddef

/* Names, paths and values of options: NUL-terminated, so that the layer above refuses NULs in them. */
TSR_JAVA_TYPE("jbyteArray", "byte[]", const char*)
%typemap(in, fragment="tsr_java") const char* {
  $1 = tsr_java_text(jenv, $input);
  if ($input && !$1) return $null;
}
%typemap(freearg) const char* { free((void*)$1); }
%typemap(out, fragment="tsr_java") const char* { $result = tsr_java_bytes(jenv, $1, $1 ? strlen($1) : 0); }
%typemap(out, fragment="tsr_java") const char* tsr_text_data {
  $result = tsr_java_bytes(jenv, $1, tsr_text_size(arg1));
}

%define TSR_TEXT(NAME)
TSR_JAVA_TYPE("jbyteArray", "byte[]", (const char* NAME, size_t size))
%typemap(in, fragment="tsr_java") (const char* NAME, size_t size) {
  $1 = tsr_java_text(jenv, $input);
  if ($input && !$1) return $null;
  $2 = $input ? (size_t)(*jenv)->GetArrayLength(jenv, $input) : 0;
}
%typemap(freearg) (const char* NAME, size_t size) { free((void*)$1); }
%enddef

%define TSR_JAVA_ELEMENTS(NAME_OF, T)
  $1 = NULL;
  if ($input) {
    $1 = ($1_ltype)(*jenv)->Get##NAME_OF##ArrayElements(jenv, $input, NULL);
    if (!$1) {
      tsr_java_no_memory(jenv);
      return $null;
    }
  }
%enddef
%define TSR_JAVA_ITEMS(JNI, JAVA, NAME_OF, T, NAME, COUNT)
TSR_JAVA_TYPE(JNI, JAVA, (T* NAME, size_t COUNT))
%typemap(in, fragment="tsr_java") (T* NAME, size_t COUNT) {
  TSR_JAVA_ELEMENTS(NAME_OF, T)
  $2 = $input ? (size_t)(*jenv)->GetArrayLength(jenv, $input) : 0;
}
%typemap(argout) (T* NAME, size_t COUNT) ""
%typemap(freearg) (T* NAME, size_t COUNT) {
  if ($1) (*jenv)->Release##NAME_OF##ArrayElements(jenv, $input, (void*)$1, TSR_JAVA_MODE(T));
}
%enddef
%define TSR_JAVA_POINTER(JNI, JAVA, NAME_OF, T, NAME)
TSR_JAVA_TYPE(JNI, JAVA, T* NAME)
%typemap(in, fragment="tsr_java") T* NAME {
  TSR_JAVA_ELEMENTS(NAME_OF, T)
}
%typemap(argout) T* NAME ""
%typemap(freearg) T* NAME {
  if ($1) (*jenv)->Release##NAME_OF##ArrayElements(jenv, $input, (void*)$1, TSR_JAVA_MODE(T));
}
%enddef
%define TSR_JAVA_RESULT(JNI, JAVA, NAME_OF, ELEMENT, T, NAME)
TSR_JAVA_TYPE(JNI, JAVA, T* NAME)
%typemap(in) T* NAME (T result) {
  result = 0;
  $1 = $input ? &result : NULL;
}
%typemap(argout) T* NAME {
  const ELEMENT value$argnum = (ELEMENT)result$argnum;
  if ($input) (*jenv)->Set##NAME_OF##ArrayRegion(jenv, $input, 0, 1, &value$argnum);
}
%typemap(freearg) T* NAME ""
%enddef
%define TSR_ITEMS_byte(T, NAME, COUNT) TSR_JAVA_ITEMS("jbyteArray", "byte[]", Byte, T, NAME, COUNT) %enddef
%define TSR_ITEMS_uint8(T, NAME, COUNT) TSR_JAVA_ITEMS("jbyteArray", "byte[]", Byte, T, NAME, COUNT) %enddef
%define TSR_ITEMS_int32(T, NAME, COUNT) TSR_JAVA_ITEMS("jintArray", "int[]", Int, T, NAME, COUNT) %enddef
%define TSR_ITEMS_uint32(T, NAME, COUNT) TSR_JAVA_ITEMS("jintArray", "int[]", Int, T, NAME, COUNT) %enddef
%define TSR_ITEMS_int64(T, NAME, COUNT) TSR_JAVA_ITEMS("jlongArray", "long[]", Long, T, NAME, COUNT) %enddef
%define TSR_ITEMS_size(T, NAME, COUNT) TSR_JAVA_ITEMS("jlongArray", "long[]", Long, T, NAME, COUNT) %enddef
%define TSR_ITEMS_float32(T, NAME, COUNT) TSR_JAVA_ITEMS("jfloatArray", "float[]", Float, T, NAME, COUNT) %enddef
%define TSR_ARRAY_uint8(T, NAME) TSR_JAVA_POINTER("jbyteArray", "byte[]", Byte, T, NAME) %enddef
%define TSR_ARRAY_int32(T, NAME) TSR_JAVA_POINTER("jintArray", "int[]", Int, T, NAME) %enddef
%define TSR_ARRAY_int64(T, NAME) TSR_JAVA_POINTER("jlongArray", "long[]", Long, T, NAME) %enddef
%define TSR_ARRAY_size(T, NAME) TSR_JAVA_POINTER("jlongArray", "long[]", Long, T, NAME) %enddef
%define TSR_ARRAY_float32(T, NAME) TSR_JAVA_POINTER("jfloatArray", "float[]", Float, T, NAME) %enddef
%define TSR_RESULT_size(T, NAME) TSR_JAVA_RESULT("jlongArray", "long[]", Long, jlong, T, NAME) %enddef
%define TSR_RESULT_int64(T, NAME) TSR_JAVA_RESULT("jlongArray", "long[]", Long, jlong, T, NAME) %enddef
%define TSR_RESULT_int32(T, NAME) TSR_JAVA_RESULT("jintArray", "int[]", Int, jint, T, NAME) %enddef
%define TSR_RESULT_uint32(T, NAME) TSR_JAVA_RESULT("jintArray", "int[]", Int, jint, T, NAME) %enddef
%define TSR_RESULT_float64(T, NAME) TSR_JAVA_RESULT("jdoubleArray", "double[]", Double, jdouble, T, NAME) %enddef
%define TSR_ITEMS(KIND, T, NAME, COUNT) TSR_ITEMS_##KIND(T, NAME, COUNT) %enddef
%define TSR_ARRAY(KIND, T, NAME) TSR_ARRAY_##KIND(T, NAME) %enddef
%define TSR_RESULT(KIND, T, NAME) TSR_RESULT_##KIND(T, NAME) %enddef
%define TSR_COUNTED(KIND, T, COUNT_TYPE, COUNT, NAME)
TSR_JAVA_TYPE("jlongArray", "long[]", (COUNT_TYPE COUNT, T* NAME))
%typemap(in, fragment="tsr_java") (COUNT_TYPE COUNT, T* NAME) {
  $2 = NULL;
  $1 = $input ? (COUNT_TYPE)(*jenv)->GetArrayLength(jenv, $input) : 0;
  if ($input && !($2 = ($2_ltype)(*jenv)->GetLongArrayElements(jenv, $input, NULL))) {
    tsr_java_no_memory(jenv);
    return $null;
  }
}
%typemap(argout) (COUNT_TYPE COUNT, T* NAME) ""
%typemap(freearg) (COUNT_TYPE COUNT, T* NAME) {
  if ($2) (*jenv)->ReleaseLongArrayElements(jenv, $input, (void*)$2, JNI_ABORT);
}
%enddef

/* The environment of the calling thread, for functions of typemaps/java_functions.i and java_hooks.i. */
%typemap(in, numinputs=0) JNIEnv* { $1 = jenv; }

/* Constants are Java's own. */
%javaconst(1);
%ignore TSR_TEXT_END;

/* Structs and addresses cross by functions of typemaps/java_functions.i. */
%ignore tsr_progress;
%ignore tsr_work_progress;
%ignore tsr_step;
%ignore tsr_piece;
%ignore tsr_event;
%ignore tsr_run_event;
%ignore tsr_trainer_step;
%ignore tsr_trainer_optimizer_step;
%ignore tsr_generator_next;
%ignore tsr_engine_next;
%ignore tsr_run_next;
%ignore tsr_tensor_data;
%ignore tsr_tensor_writable;

%pragma(java) jniclasscode=%{
  static {
    NativeLibrary.load();
  }
%}

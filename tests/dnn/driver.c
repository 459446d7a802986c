/* A driver that has no device and yet takes modules, for cuDNN to compile its plans with where there is none:
 * every function that it looks up by name. Named as the driver (libcuda.so.1), which a process then has
 * already. */

enum { kSuccess = 0, kStub = 34 };
static int kSomething;

#define TAKES(name, ...) \
  int name(__VA_ARGS__); \
  int name(__VA_ARGS__)
/* Whatever else it looks up answers that this is no driver. */
#define REFUSES(name) \
  int name(void);     \
  int name(void) { return kStub; }

TAKES(cuInit, unsigned flags) { return (void)flags, kSuccess; }
TAKES(cuDriverGetVersion, int* version) { return *version = 13000, kSuccess; }
TAKES(cuLibraryLoadData, void** library, const void* code, void* options, void* values, unsigned count,
      void* more, void* more_values, unsigned more_count) {
  (void)code, (void)options, (void)values, (void)count, (void)more, (void)more_values, (void)more_count;
  return *library = &kSomething, kSuccess;
}
TAKES(cuLibraryUnload, void* library) { return (void)library, kSuccess; }
TAKES(cuLibraryGetKernel, void** kernel, void* library, const char* name) {
  return (void)library, (void)name, *kernel = &kSomething, kSuccess;
}
TAKES(cuKernelGetFunction, void** function, void* kernel) {
  return (void)kernel, *function = &kSomething, kSuccess;
}
TAKES(cuKernelSetAttribute, int attribute, int value, void* kernel, int device) {
  return (void)attribute, (void)value, (void)kernel, (void)device, kSuccess;
}
TAKES(cuKernelGetAttribute, int* value, int attribute, void* kernel, int device) {
  return (void)attribute, (void)kernel, (void)device, *value = 128, kSuccess;
}
REFUSES(cuGetErrorName)
REFUSES(cuGetErrorString)
REFUSES(cuGetExportTable)
REFUSES(cuGetProcAddress)
REFUSES(cuGetProcAddress_v2)
REFUSES(cuCtxGetCurrent)
REFUSES(cuCtxGetDevice)
REFUSES(cuCtxGetLimit)
REFUSES(cuCtxPopCurrent)
REFUSES(cuCtxPopCurrent_v2)
REFUSES(cuCtxPushCurrent)
REFUSES(cuCtxPushCurrent_v2)
REFUSES(cuDeviceGet)
REFUSES(cuDeviceGetAttribute)
REFUSES(cuDeviceGetCount)
REFUSES(cuDevicePrimaryCtxRelease)
REFUSES(cuDevicePrimaryCtxReset)
REFUSES(cuDevicePrimaryCtxRetain)
REFUSES(cuFuncGetAttribute)
REFUSES(cuFuncSetAttribute)
REFUSES(cuLaunchCooperativeKernel)
REFUSES(cuLaunchKernel)
REFUSES(cuLaunchKernelEx)
REFUSES(cuLibraryLoadFromFile)
REFUSES(cuLinkAddData)
REFUSES(cuLinkAddData_v2)
REFUSES(cuLinkAddFile_v2)
REFUSES(cuLinkComplete)
REFUSES(cuLinkCreate)
REFUSES(cuLinkCreate_v2)
REFUSES(cuLinkDestroy)
REFUSES(cuMemcpyDtoH_v2)
REFUSES(cuModuleGetFunction)
REFUSES(cuModuleGetGlobal_v2)
REFUSES(cuModuleLoadData)
REFUSES(cuModuleLoadDataEx)
REFUSES(cuModuleLoadFatBinary)
REFUSES(cuModuleUnload)
REFUSES(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSES(cuOccupancyMaxPotentialClusterSize)
REFUSES(cuStreamGetCtx)
REFUSES(cuStreamSynchronize)
REFUSES(cuTensorMapEncodeTiled)

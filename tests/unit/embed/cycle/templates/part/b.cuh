
//@use a.cu
int b;

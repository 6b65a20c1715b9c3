/** The job server of Beam's Flink or Spark runner, without the cloud options that its own main registers. */
public final class JobServer {
  public static void main(String[] args) throws Exception {
    var options = org.apache.beam.sdk.options.PipelineOptionsFactory.create();
    org.apache.beam.sdk.io.FileSystems.setDefaultPipelineOptions(options);
    var driver = Class.forName(args[0]).getMethod("fromParams", String[].class);
    String[] rest = java.util.Arrays.copyOfRange(args, 1, args.length);
    ((Runnable) driver.invoke(null, (Object) rest)).run();
  }
}

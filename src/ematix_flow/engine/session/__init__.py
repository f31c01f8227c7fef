"""The Spark session of this process: settings, jars, Java, the JVM and its errors."""
